"""Builds a /proc of made-up processes under a folder, in the kernel's own words."""

from __future__ import annotations

from pathlib import Path

HOST = 4026531836


class ProcTree:
    """A fixture /proc. `uptime` is in seconds; start ticks are given by whoever adds a process."""

    def __init__(self, root: Path, *, namespace: int | None = HOST, uptime: float = 1000.0) -> None:
        self.root = root
        (root / "self" / "ns").mkdir(parents=True)
        if namespace is not None:
            (root / "self" / "ns" / "pid").symlink_to(f"pid:[{namespace}]")
        (root / "uptime").write_text(f"{uptime:.2f} 4000.00\n")
        (root / "locks").write_text("")

    def add(
        self,
        pid: int,
        *,
        command: bytes = b"python3",
        ticks: int = 5000,
        session: int | None = None,
        parent: int = 1,
        uid: int = 0,
        effective: int | None = None,
        arguments: tuple[bytes, ...] = (b"python3", b"serve.py"),
        executable: str | None = "/usr/bin/python3.12",
        state: str = "S",
        namespace_pids: tuple[int, ...] | None = None,
        environment: tuple[bytes, ...] = (),
    ) -> Path:
        folder = self.root / str(pid)
        folder.mkdir(parents=True)
        group = pid if session is None else session
        before = f"{pid} (".encode() + command + f") {state} {parent} {group} {group} 0 -1 4194560".encode()
        (folder / "stat").write_bytes(before + b" 1" * 12 + f" {ticks} 1000 200 0 0\n".encode())
        effective = uid if effective is None else effective
        pids = "\t".join(map(str, namespace_pids or (pid,)))
        (folder / "status").write_bytes(
            b"Name:\t"
            + command.replace(b"\n", b"\\n")
            + b"\nUmask:\t0022\nState:\tS (sleeping)\n"
            + f"Pid:\t{pid}\nUid:\t{uid}\t{effective}\t{uid}\t{uid}\nGid:\t0\t0\t0\t0\nNSpid:\t{pids}\n".encode()
        )
        (folder / "cmdline").write_bytes(b"".join(word + b"\0" for word in arguments))
        (folder / "environ").write_bytes(b"".join(word + b"\0" for word in environment))
        if executable is not None:
            (folder / "exe").symlink_to(executable)
        return folder

    def server(self, pid: int, *, uid: int = 0, multi_user: bool = False, ticks: int = 4000, state: str = "S") -> Path:
        arguments = (b"nvidia-cuda-mps-server", *((b"-multiuser-server",) if multi_user else ()))
        return self.add(
            pid,
            command=b"nvidia-cuda-mps",
            uid=uid,
            arguments=arguments if state != "Z" else (),
            ticks=ticks,
            executable="/usr/bin/nvidia-cuda-mps-server",
            state=state,
        )

    def lock(self, line: str) -> None:
        with (self.root / "locks").open("a") as file:
            file.write(line + "\n")

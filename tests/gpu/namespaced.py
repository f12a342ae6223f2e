"""The measuring client in pid namespaces of its own and as another user, on a real GPU, in about 45 seconds, as root.

usage: namespaced.py OUTPUT_DIRECTORY [--rehearsal] [--only NAME…] [--seconds SECONDS]

One sweep each by a command of one's own that begins with `unshare`, by the command lines of `docker run` and
`podman exec` as CI's strict stand-in for them (tests/runtimes/stand_in.py) carries them out on real namespaces, and by
`sweep.client.uid` on a server of that user, without a namespace and in one; each beside services that compute, notice
faults, and are to be alive afterwards. Writes the sweeps' documents, control.log and `namespaced.json` (each check:
what, and whether it held). Exits 1 when one did not.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from identity import Run  # noqa: E402 -- the path above is for plain python3
from private_mps import Mps, Rehearsed, came, lacks, until  # noqa: E402 -- sets the path for mpswatch

from mpswatch.documents import Cell, SweepDocument, to_json  # noqa: E402
from mpswatch.proc import Processes, ProcessGone  # noqa: E402

CAPS = (100, 50, 25)
USER = 1000
TOLD = ["-B", "{client}", "--backend", "{backend}", "--pipe-directory", "{pipe_directory}"]


class Neighbours:
    """Two services that compute five times a second, and one light client: who is there before us and after."""

    def __init__(self, mps: Mps, uid: int | None) -> None:
        self.mps, self.uid = mps, uid
        self.light = mps.clients(0, "--as", "service", uid=uid)
        self.said = mps.work / f"services-{mps.name}.txt"
        self.program: subprocess.Popen[bytes] | None = None
        if isinstance(mps, Rehearsed):
            return
        as_user = [] if uid is None else ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"]
        services = shutil.copy(HERE / "services.py", mps.work)
        Path(services).chmod(0o644)
        with self.said.open("wb") as out:
            self.program = subprocess.Popen(
                [*as_user, sys.executable, "-B", services, "2", "0.2"], stdin=subprocess.PIPE, stdout=out,
                stderr=subprocess.STDOUT, env=mps.environment | {"HOME": "/tmp"}, start_new_session=True,
            )  # fmt: skip

    def wait(self) -> None:
        self.light.wait(20)
        if isinstance(self.mps, Rehearsed):  # the light client has brought the server, of its own uid
            self.mps.stack.add_service("ranker", uid=self.uid or 0)
        else:
            until(lambda: self.said.read_text().count("ready ") == 2, 30)

    def harmed(self) -> str:
        """What became of them; empty where nothing did."""
        if isinstance(self.mps, Rehearsed):
            bad = [*self.mps.stack.harmed_neighbours(), *self.mps.stack.unsafe_ends()]
            return str(bad) if bad else ""
        gone = "" if self.program is not None and self.program.poll() is None else "the services have ended; "
        dead = [line for line in self.said.read_text().splitlines() if line.startswith("dead ")]
        return gone + "; ".join(dead)

    def leave(self) -> None:
        self.light.leave()
        if self.program is not None and self.program.stdin is not None:
            self.program.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.program.wait(10)


class Stage:
    """The two stacks, one whose server is of another user. Both begin at once, as importing torch takes its time."""

    def __init__(self, run: Run) -> None:
        self.run, self.processes = run, Processes()
        self.ends = contextlib.ExitStack()
        self.stand_in = run.work / "docker"
        self.stand_in.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE.parent}/runtimes/stand_in.py "$@"\n')
        self.stand_in.chmod(0o755)
        self.root, self.user = (self.ends.enter_context(run.mps(name)) for name in ("root", "user"))
        self.neighbours = {mps.name: Neighbours(mps, uid) for mps, uid in ((self.root, None), (self.user, USER))}

    def begin(self) -> None:
        for neighbours in self.neighbours.values():
            self.ends.callback(neighbours.leave)
        for neighbours in self.neighbours.values():
            neighbours.wait()

    def listed(self, mps: Mps) -> set[int]:
        return {int(word) for server in mps.servers() for word in mps.ask(f"get_client_list {server}").split()}

    def sweep(
        self, mps: Mps, why: str, described: str, *, uid: int = 0, namespaced: bool = True, **client: object
    ) -> None:
        """Every cell measured, managed, known by its pid and namespace; afterwards nobody of ours, nobody harmed."""
        run, check = self.run, self.run.check
        before, log, began = self.listed(mps), mps.clients_seen(), time.monotonic()
        document = run.sweep(mps, "complete", why, caps=list(CAPS), client={"uid": uid, "python": "python3"} | client)
        run.figures.setdefault("seconds", {})[why] = round(time.monotonic() - began, 2)  # type: ignore[index,attr-defined]
        new = came(log, mps.clients_seen())
        if document is not None:
            run.write(f"sweep-{why.replace(' ', '-')}.json", to_json(document, indent=1).decode())
            self._cells(document, why, mps, log, namespaced=namespaced)
            said = document.protocol.client_runtime
            check(said.startswith(described) and said.endswith(f"as uid {uid}"), f"{why}: the document says {said!r}")
            check(run.rehearsal or new == len(CAPS), f"{why}: control.log names {new} clients that came")
        until(lambda: self.listed(mps) == before, 5, strict=False)
        check(self.listed(mps) == before, f"{why}: get_client_list says {sorted(self.listed(mps))} before and after")
        until(lambda: not self.processes.flock_holders(mps.pipe), 5, strict=False)
        check(not self.processes.flock_holders(mps.pipe), f"{why}: nobody holds the lock on the pipe directory")
        harmed = self.neighbours[mps.name].harmed()
        check(not harmed, f"{why}: the neighbours are alive {harmed}")

    def _cells(self, document: SweepDocument, why: str, mps: Mps, log: list[str], *, namespaced: bool) -> None:
        check, cells = self.run.check, document.cells
        check([cell.cap for cell in cells] == [str(cap) for cap in CAPS], f"{why}: each cap has its cell")
        check(all(cell.self_was_managed for cell in cells), f"{why}: each client was managed")
        pids = [(cell.client_reported_pid, cell.client_pid) for cell in cells]
        inside = [cell.client_pid_is_namespaced for cell in cells]
        check(inside == [namespaced] * len(CAPS), f"{why}: a pid namespace of its own: {inside}")
        check(
            all((reported != pid) == namespaced and pid for reported, pid in pids),
            f"{why}: it called itself, and is here: {pids}",
        )
        if namespaced:
            check(all(reported is not None and reported < 100 for reported, _ in pids), f"{why}: small numbers there")
        joined = [cell.mps_clients_joined_during_cell for cell in cells]
        check(joined == [(pid,) for _, pid in pids], f"{why}: who joined the daemon's list: {joined}")
        check(all(map(sms_are_right, cells)), f"{why}: multiprocessors {[(c.cap, c.sm_count) for c in cells]}")
        check(not any(map(self._is_there, (pid for _, pid in pids if pid))), f"{why}: none of them is a process now")
        if not self.run.rehearsal:
            lines = mps.clients_seen()[len(log) :]
            named = [any(f"NEW CLIENT {pid} " in line for line in lines) for _, pid in pids]
            check(all(named), f"{why}: control.log names them by the host's numbers: {named}")
            check([c.sm_count for c in cells] == [132, 66, 32], f"{why}: 132, 66 and 32 on an H200")
        self.run.say(f"{why}: TFLOPS {[cell.tflops and round(cell.tflops, 1) for cell in cells]}")

    def _is_there(self, pid: int) -> bool:
        try:
            return self.processes.facts(pid).state != "Z"
        except ProcessGone:
            return False


def sms_are_right(cell: Cell) -> bool:
    return cell.sm_count is not None and cell.sm_count_as_expected is True


def by_command(run: Run, stage: Stage) -> None:
    """A command of one's own: `unshare` makes the namespace, the client's launcher is pid 1 in it."""
    words = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", sys.executable, *TOLD]
    stage.sweep(stage.root, "command unshare", "command unshare --pid --fork --mount --mount-proc",
                runtime="command", command=words)  # fmt: skip


def docker_run(run: Run, stage: Stage) -> None:
    """The command line of `docker run`, the client mounted as a file, root in the container."""
    stage.sweep(stage.root, "docker run", "docker run torch-image python3",
                runtime="docker", program=str(stage.stand_in), image="torch-image")  # fmt: skip


def podman_exec(run: Run, stage: Stage) -> None:
    """The command line of `podman exec`, the client handed over on standard input."""
    stage.sweep(stage.root, "podman exec", "podman exec embedder python3",
                runtime="podman", program=str(stage.stand_in), container="embedder")  # fmt: skip


def another_user(run: Run, stage: Stage) -> None:
    """`sweep.client.uid`: mpswatch is root, the server and the client are another user's."""
    servers = [stage.processes.facts(pid).uid for pid in stage.user.servers()]
    run.check(run.rehearsal or servers == [USER], f"the server runs as uid {servers}")
    stage.sweep(stage.user, "another user", "process", uid=USER, namespaced=False, python=sys.executable)


def another_user_in_a_container(run: Run, stage: Stage) -> None:
    """The same in a namespace: `docker run --user`."""
    stage.sweep(stage.user, "docker run as another user", "docker run torch-image", uid=USER,
                runtime="docker", program=str(stage.stand_in), image="torch-image")  # fmt: skip


def nobody_asked(run: Run, stage: Stage) -> None:
    """And without `sweep.client.uid` on that user's server: refused, and nobody came."""
    run.sweep(stage.user, "uid_mismatch", "root's client on another user's server")


SCENES: dict[str, Callable[[Run, Stage], None]] = {
    "by_command": by_command,
    "docker_run": docker_run,
    "podman_exec": podman_exec,
    "another_user": another_user,
    "another_user_in_a_container": another_user_in_a_container,
    "nobody_asked": nobody_asked,
}


def too_late(run: Run, stage: list[Stage], seconds: float) -> None:
    """Whatever hangs: what was found so far is what there is. Clients leave, drained, when our pipes close."""
    run.check(False, f"it was done within {seconds:g} s")
    for mps in [mps for held in stage for mps in (held.root, held.user)]:
        with contextlib.suppress(Exception):
            mps.ask("quit")
    run.finish("namespaced.json")


def play(run: Run, stage: Stage, names: list[str]) -> None:
    stage.begin()
    for name in names:
        run.say(f"--- {name}: {(SCENES[name].__doc__ or '').strip()}")
        try:
            SCENES[name](run, stage)
        except (Exception, SystemExit):  # noqa: BLE001 -- the others may still tell something
            run.check(False, f"{name} broke off: {traceback.format_exc()[-1500:]}")
    for mps in (stage.root, stage.user):
        run.write(f"control-{mps.name}.txt", "\n".join(mps.lines()) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--rehearsal", action="store_true")
    parser.add_argument("--only", nargs="*", default=list(SCENES), choices=list(SCENES))
    parser.add_argument("--seconds", type=float, default=90.0, help="it ends by then, whatever hangs")
    options = parser.parse_args()
    if missing := lacks(rehearsal=options.rehearsal):
        print("this cannot run here:\n  " + "\n  ".join(missing), file=sys.stderr)
        return 2
    options.output.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="mw-"))
    work.chmod(0o755)
    shutil.copy(HERE / "light.py", work)
    (work / "light.py").chmod(0o644)
    run, held = Run(options.output, work, rehearsal=options.rehearsal), list[Stage]()
    watch = threading.Timer(options.seconds, too_late, (run, held, options.seconds))
    watch.daemon = True
    watch.start()
    try:
        stage = Stage(run)
        held.append(stage)
        with stage.ends:
            play(run, stage, options.only)
    except Exception:  # noqa: BLE001 -- what was found counts all the same
        run.check(False, f"it broke off: {traceback.format_exc()[-1500:]}")
    run.finish("namespaced.json")
    return 1


if __name__ == "__main__":
    sys.exit(main())

"""/proc under a configurable root: who a process is, and since when.

A pid alone identifies nobody, because pids are used again: what is remembered is always the pair
(pid, start ticks). Start ticks are field 22 of /proc/PID/stat, clock ticks since boot.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from mpswatch.documents import Reason
from mpswatch.errors import MpswatchError

HOST_PID_NAMESPACE = 4026531836
"""The inode of the host's pid namespace: PROC_PID_INIT_INO, a constant of the kernel."""

PID_MAX = 1 << 22
"""The kernel's PID_MAX_LIMIT on 64-bit machines: no pid is larger."""

_NAMESPACE = re.compile(r"pid:\[(\d+)\]")


class ProcessGone(MpswatchError):  # noqa: N818 -- says what happened, and reads so where it is caught
    """There is no such process any more (`process_gone`), or this user may not look at it (`permission`)."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What one look at a process costs little to know. `uid` is the effective one, None where unreadable."""

    pid: int
    start_ticks: int
    session: int
    uid: int | None
    command: str
    state: str


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """All of a process that mpswatch asks about; None and empty where this user may not look.

    `namespace_pids` is the NSpid line: this process's pid in each pid namespace, outermost first.
    `arguments` is empty for a zombie. `session` is the session leader's pid.
    """

    pid: int
    start_ticks: int
    uid: int | None
    session: int
    parent: int
    namespace_pids: tuple[int, ...]
    command: str
    arguments: tuple[str, ...]
    executable: str | None
    state: str


class _Stat(NamedTuple):
    command: str
    state: str
    parent: int
    session: int
    start_ticks: int


class Processes:
    """The processes under one /proc."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self.root = root
        self._prefix = f"{root}/"
        self._ticks_per_second = os.sysconf("SC_CLK_TCK")

    def facts(self, pid: int) -> ProcessFacts:
        """Everything about `pid`, or `ProcessGone`."""
        stat = self._stat(pid)
        status = self._status(pid)
        return ProcessFacts(
            pid=pid,
            start_ticks=stat.start_ticks,
            uid=_uid(status),
            session=stat.session,
            parent=stat.parent,
            namespace_pids=_namespace_pids(status) or (pid,),
            command=stat.command,
            arguments=self._arguments(pid),
            executable=self._executable(pid),
            state=stat.state,
        )

    def identity(self, pid: int, known: Identity | None = None) -> Identity:
        """The cheap part of `facts`, or `ProcessGone`: two small reads.

        One is enough for the process that is already `known` (same start): its uid is then that of the first look.
        """
        stat = self._stat(pid)
        if known is None or known.start_ticks != stat.start_ticks:
            return Identity(pid, stat.start_ticks, stat.session, _uid(self._status(pid)), stat.command, stat.state)
        if (known.command, known.session, known.state) == (stat.command, stat.session, stat.state):
            return known
        return Identity(pid, stat.start_ticks, stat.session, known.uid, stat.command, stat.state)

    def identities(self, pids: Iterable[int], known: Mapping[int, Identity] | None = None) -> dict[int, Identity]:
        """Those of `pids` that can be looked at. `known` are identities of an earlier look."""
        before = known or {}
        found = {}
        for pid in pids:
            try:
                found[pid] = self.identity(pid, before.get(pid))
            except ProcessGone:
                continue
        return found

    def start_ticks(self, pid: int) -> int | None:
        """When `pid` started, in clock ticks since boot; None when there is no such process: one small read."""
        try:
            return self._stat(pid).start_ticks
        except ProcessGone:
            return None

    def uptime(self) -> float | None:
        """Seconds since boot; None where /proc/uptime cannot be read."""
        try:
            return float(_read_once(f"{self._prefix}uptime").split()[0])
        except (OSError, ValueError, IndexError):
            return None

    def age_seconds(self, facts: ProcessFacts | Identity, uptime: float | None = None) -> float | None:
        """Seconds since the process started; None where /proc/uptime cannot be read.

        Who asks about many processes hands over `uptime`: the kernel adds up every CPU for each reading of it.
        """
        uptime = self.uptime() if uptime is None else uptime
        return None if uptime is None else max(0.0, uptime - facts.start_ticks / self._ticks_per_second)

    def boot_time(self) -> datetime | None:
        """When the machine booted, by its clock of now (`btime` in /proc/stat); None where that cannot be read."""
        try:
            words = _line(_read(f"{self._prefix}stat"), b"btime", b" ")
            return datetime.fromtimestamp(int(words[0]), UTC)
        except (OSError, ValueError, IndexError, OverflowError):
            return None

    def started_at(self, facts: ProcessFacts | Identity, boot: datetime) -> datetime:
        """When the process started, to about a second (the kernel rounds `boot_time`)."""
        return boot + timedelta(seconds=facts.start_ticks / self._ticks_per_second)

    def memory(self) -> tuple[int | None, int | None]:
        """MemTotal and MemAvailable in bytes, None where they cannot be read."""
        try:
            data = b"\n" + _read(f"{self._prefix}meminfo")
        except OSError:
            return None, None
        total, available = (_line(data, key) for key in (b"MemTotal", b"MemAvailable"))
        return _kibibytes(total), _kibibytes(available)

    def cgroup(self, pid: int) -> bytes:
        """The lines of /proc/PID/cgroup, or `ProcessGone`."""
        return self._file(pid, "cgroup")

    def flock_holders(self, path: Path) -> tuple[int, ...]:
        """The pids that took an exclusive flock on the file at `path`, from /proc/locks.

        The kernel goes on naming the process that took the lock while any descriptor that it inherited to
        is open, so this pid may be gone already. OSError is for the caller where `path` or /proc/locks
        cannot be read.
        """
        ending = b":%d" % path.stat().st_ino
        listed = _read(f"{self._prefix}locks")
        if ending not in listed:
            return ()
        candidates = []
        for line in listed.splitlines():
            words = line.split()
            # 1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF ; a waiter has `->` in the second place
            if len(words) >= 6 and words[1] == b"FLOCK" and words[3] == b"WRITE" and words[5].endswith(ending):
                candidates.append((words[5].rpartition(b":")[0].lower(), int(words[4])))
        if not candidates:
            return ()
        devices = _devices(path)
        return tuple(sorted({pid for device, pid in candidates if device in devices and pid > 0}))

    def environment(self, pid: int) -> dict[str, str]:
        """The environment that `pid` was started with; empty where this user may not look."""
        try:
            data = _read(f"{self._prefix}{pid}/environ")
        except OSError:
            return {}
        pairs = (word.decode("utf-8", "backslashreplace").partition("=") for word in data.split(b"\0") if b"=" in word)
        return {key: value for key, _, value in pairs}

    def sees_host_pids(self) -> bool | None:
        """Whether this process lives in the host's pid namespace: elsewhere the driver lists no process at all.

        None where that cannot be read.
        """
        try:
            target = os.readlink(f"{self._prefix}self/ns/pid")  # noqa: PTH115 - a name, not a path: `pid:[4026531836]`
        except OSError:
            return None
        match = _NAMESPACE.fullmatch(target)
        return int(match.group(1)) == HOST_PID_NAMESPACE if match else None

    def _stat(self, pid: int) -> _Stat:
        data = self._file(pid, "stat")
        # The name stands in brackets and may hold brackets and blanks itself: the last one closes it.
        opening, closing = data.find(b"("), data.rfind(b")")
        fields = data[closing + 1 :].split(None, 20)
        try:
            return _Stat(
                command=data[opening + 1 : closing].decode("utf-8", "backslashreplace"),
                state=fields[0].decode("ascii"),
                parent=int(fields[1]),
                session=int(fields[3]),
                start_ticks=int(fields[19]),
            )
        except (IndexError, ValueError):
            raise ProcessGone(Reason.PROCESS_GONE, f"/proc/{pid}/stat holds no process") from None

    def _status(self, pid: int) -> bytes:
        return self._file(pid, "status")

    def _file(self, pid: int, name: str) -> bytes:
        try:
            return _read_once(f"{self._prefix}{pid}/{name}")
        except PermissionError:
            raise ProcessGone(Reason.PERMISSION, f"/proc/{pid}/{name} may not be read") from None
        except OSError:
            raise ProcessGone(Reason.PROCESS_GONE, f"there is no process {pid}") from None

    def _arguments(self, pid: int) -> tuple[str, ...]:
        try:
            data = _read(f"{self._prefix}{pid}/cmdline")
        except OSError:
            return ()
        words = data.removesuffix(b"\0").split(b"\0") if data else []
        return tuple(word.decode("utf-8", "backslashreplace") for word in words)

    def _executable(self, pid: int) -> str | None:
        try:
            target = os.readlink(f"{self._prefix}{pid}/exe".encode())  # noqa: PTH115 - bytes: may be no valid UTF-8
        except OSError:
            return None
        return target.decode("utf-8", "backslashreplace")


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = []
        while piece := os.read(descriptor, 1 << 16):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(descriptor)


def _read_once(path: str) -> bytes:
    """A file that the kernel writes in one piece: `stat` and `status` are far below a page."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 1 << 14)
    finally:
        os.close(descriptor)


def _line(status: bytes, key: bytes, colon: bytes = b":") -> list[bytes]:
    start = status.find(b"\n" + key + colon)
    if start < 0:
        return []
    end = status.find(b"\n", start + 1)
    return status[start + len(key) + 2 : end if end >= 0 else None].split()


def _kibibytes(words: list[bytes]) -> int | None:
    return int(words[0]) << 10 if words and words[0].isdigit() else None


def _uid(status: bytes) -> int | None:
    words = _line(status, b"Uid")  # real, effective, saved, file system
    return int(words[1]) if len(words) == 4 and words[1].isdigit() else None


def _namespace_pids(status: bytes) -> tuple[int, ...]:
    return tuple(int(word) for word in _line(status, b"NSpid") if word.isdigit())


def _devices(path: Path) -> set[bytes]:
    """`path`'s device as /proc/locks writes it. On some file systems (btrfs) stat's is another: ask the mount too."""
    device = path.stat().st_dev
    found = {b"%02x:%02x" % (os.major(device), os.minor(device))}
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        mount = _line(b"\n" + _read(f"/proc/self/fdinfo/{descriptor}"), b"mnt_id")
        for line in _read("/proc/self/mountinfo").splitlines():
            words = line.split(None, 3)
            if mount and words[0] == mount[0]:
                major, _, minor = words[2].partition(b":")
                found.add(b"%02x:%02x" % (int(major), int(minor)))
    except (OSError, ValueError):
        pass
    finally:
        os.close(descriptor)
    return found

"""Processes that look like what they play: forked, renamed in /proc, and gone when their parent is gone.

Only the stack's own processes are made here. A measuring client that attaches is never signalled.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
PR_SET_MM = 35
PR_SET_MM_MAP = 14
CLONE_NEWPID = 0x20000000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
_libc.sbrk.restype = ctypes.c_void_p
_shown: list[ctypes.Array[ctypes.c_char]] = []  # what /proc shows is read from here for as long as we live


def fork(
    work: Callable[[], int],
    *,
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
    uid: int | None = None,
    keep: Collection[int] = (),
    own_session: bool = False,
) -> int:
    """Start a process that does `work`; returns its pid.

    /proc shows `arguments` and `environment` as its own, it holds no descriptor but stderr and `keep`,
    and the kernel ends it (stopped or not) with the process that forked it.
    """
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        if own_session:
            os.setsid()
        _close_all_but(keep)
        looks = _look_up()
        if uid is not None and uid != os.getuid():
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        disguise(arguments, environment or {}, looks)
        _leave_with(parent)
        status = work()
    except BaseException:  # noqa: BLE001 (the child must end here, whatever happened)
        traceback.print_exc()
    finally:
        os._exit(status)


def into_pid_namespace() -> None:
    """The next child of this process is pid 1 of a pid namespace of its own (needs root)."""
    if _libc.unshare(CLONE_NEWPID) != 0:
        raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWPID)")


def adopt_orphans() -> None:
    """Grandchildren whose parent was killed become this process's children, to be buried by it."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end(pid: int) -> None:
    """End one of the stack's own processes, frozen or not."""
    tell(pid, signal.SIGKILL)


def tell(pid: int, number: signal.Signals) -> None:
    """Signal one of the stack's own processes; one that is gone is no error."""
    try:
        os.kill(pid, number)  # noqa: TID251 (a process that the stack made; clients are never handed here)
    except ProcessLookupError:
        return


def disguise(arguments: Sequence[str], environment: Mapping[str, str], looks: tuple[int, ...]) -> None:
    """Show `arguments` in /proc/self/cmdline, `environment` in environ and the program's name in comm."""
    # Not by way of /proc/self/comm: after a change of uid that file belongs to root.
    name = ctypes.create_string_buffer(os.fsencode(arguments[0].rpartition("/")[2])[:15])
    _libc.prctl(PR_SET_NAME, ctypes.addressof(name), 0, 0, 0)
    line = b"".join(os.fsencode(argument) + b"\0" for argument in arguments)
    extra = b"".join(os.fsencode(f"{key}={value}") + b"\0" for key, value in environment.items())
    memory = ctypes.create_string_buffer(line + extra, len(line) + len(extra) + 1)
    _shown.append(memory)
    start = ctypes.addressof(memory)
    code, code_end, stack, data, data_end, heap, argument_start, argument_end = looks
    shown = (start, start + len(line), start + len(line), start + len(line) + len(extra))
    request = struct.pack("=12QIi", code, code_end, data, data_end, heap, _libc.sbrk(0), stack, *shown, 0, 0, -1)
    block = ctypes.create_string_buffer(request, len(request))
    if _libc.prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.addressof(block), len(request), 0) != 0:
        # A kernel without checkpoint support: overwrite in place, cut to the room there is.
        room = argument_end - argument_start
        ctypes.memmove(argument_start, line[: room - 1].ljust(room, b"\0"), room)


def _look_up() -> tuple[int, ...]:
    """Of proc_pid_stat(5): start_code, end_code, start_stack, start_data, end_data, start_brk, arg_start, arg_end."""
    with open("/proc/self/stat", "rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()
    return tuple(int(fields[number - 3]) for number in (26, 27, 28, 45, 46, 47, 48, 49))


def _leave_with(parent: int) -> None:
    # Set after the change of uid, which clears it; the parent may have gone in between.
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() not in {parent, 0}:  # 0: pid 1 of a namespace
        os._exit(0)


def _close_all_but(keep: Collection[int]) -> None:
    nothing = os.open("/dev/null", os.O_RDWR)
    for descriptor in {0, 1} - set(keep):
        os.dup2(nothing, descriptor)
    first = 3
    for descriptor in [*sorted(number for number in keep if number > 2), os.sysconf("SC_OPEN_MAX")]:
        os.closerange(first, descriptor)
        first = descriptor + 1

"""The director: the stack's first process. It forks all others, answers for the GPU, and does what it is told.

It leaves, with everything it made, when its owner's pipe (standard input) ends: so nothing survives a kill -9.
"""

from __future__ import annotations

import contextlib
import gc
import heapq
import itertools
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from mpswatch.rehearsal import gpus, processes, scene, smi, tenants
from mpswatch.rehearsal.alarm import Alarm
from mpswatch.rehearsal.control import Control, prepare
from mpswatch.rehearsal.layout import Layout, RehearsalError, clear
from mpswatch.rehearsal.scene import Daemon, Place

AT_ONCE = 100  # tenants; each has a descriptor open until it is in its place
READY_PATIENCE = 10.0  # seconds for a control daemon to open its sockets


class Director:
    """The stack's state and its loop; orders.py holds what it can be told."""

    def __init__(self, layout: Layout, *, devices: int) -> None:
        self.layout = layout
        self.pid = os.getpid()
        self.devices = devices
        self.daemons: dict[str, Daemon] = {}
        self.places: dict[int, Place] = {}
        self.departed: list[dict[str, Any]] = []
        self.ghosts: list[smi.Row] = []
        self.smi_how = ""
        self.smi_questions = 0
        self.utilization = 2
        self.used_by_nobody_mib = 0
        self.stopping = False
        self._selector = selectors.DefaultSelector()
        self._hung: list[socket.socket] = []
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()

    # --- the loop ----------------------------------------------------------------------------------

    def run(self, orders: Callable[[Director, dict[str, Any]], dict[str, Any]], ready: Callable[[], None]) -> None:
        processes.adopt_orphans()
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        alarm = Alarm()

        def child_ended() -> None:
            alarm.hush()
            self.bury()

        self._alarm = alarm  # rings until the very end
        self._selector.register(alarm.bell, selectors.EVENT_READ, child_ended)
        self._selector.register(0, selectors.EVENT_READ, self._hear_owner)
        self._listen(self.layout.smi, self._hear_smi)
        self._listen(self.layout.tell, lambda connection: self._hear_order(connection, orders))
        gc.freeze()  # what is shared with the children stays shared
        ready()
        while not self.stopping:
            for key, _ in self._selector.select(self._patience()):
                key.data()
            while self._timers and self._timers[0][0] <= time.monotonic():
                heapq.heappop(self._timers)[2]()

    def later(self, seconds: float, act: Callable[[], object]) -> None:
        """Do `act` in so many seconds."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), act))

    def _patience(self) -> float | None:
        return max(self._timers[0][0] - time.monotonic(), 0) if self._timers else None

    def _stop(self, *_: object) -> None:
        self.stopping = True

    def _hear_owner(self) -> None:
        if not os.read(0, 4096):
            self.stopping = True

    def _listen(self, path: Path, act: Callable[[socket.socket], object]) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        path.chmod(0o666)
        listener.listen(128)

        def greet() -> None:
            connection = listener.accept()[0]
            connection.settimeout(2.0)
            with contextlib.suppress(OSError):
                act(connection)

        self._selector.register(listener, selectors.EVENT_READ, greet)

    def _hear_order(
        self, connection: socket.socket, orders: Callable[[Director, dict[str, Any]], dict[str, Any]]
    ) -> None:
        with connection:
            try:
                answer: dict[str, Any] = {"ok": orders(self, msgspec.json.decode(_all_of(connection), type=dict))}
            except (RehearsalError, msgspec.MsgspecError, OSError, TypeError, ValueError) as error:
                answer = {
                    "error": f"{error}" if isinstance(error, RehearsalError) else f"{type(error).__name__}: {error}"
                }
            connection.sendall(msgspec.json.encode(answer))

    def _hear_smi(self, connection: socket.socket) -> None:
        self.smi_questions += 1
        arguments = [os.fsdecode(argument) for argument in _all_of(connection).split(b"\0") if argument]
        if self.smi_how == "hang":
            self._hung.append(connection)
            return
        status, output = smi.answer(arguments, self._view())
        with connection:
            connection.sendall(f"{status}\n".encode() + output)

    def unhang_smi(self) -> None:
        """Hang up on those who were kept waiting."""
        for connection in self._hung:
            connection.close()
        self._hung.clear()

    def _view(self) -> smi.View:
        return smi.View(
            devices=self.devices,
            rows=scene.rows(self.daemons.values(), self.places, self.ghosts),
            utilization=self.utilization,
            used_by_nobody_mib=self.used_by_nobody_mib,
            how=self.smi_how,
        )

    # --- who is there ------------------------------------------------------------------------------

    def daemon(self, name: str) -> Daemon:
        try:
            return self.daemons[name]
        except KeyError:
            raise RehearsalError(f"there is no daemon {name!r}, but {', '.join(self.daemons)}") from None

    def start_daemon(self, name: str) -> None:
        """Fork a control daemon and wait until its sockets are there."""
        daemon = self.daemon(name)
        if daemon.pid is not None:
            raise RehearsalError(f"the daemon {name!r} is running")
        prepare(daemon.paths)
        heard, write = os.pipe()
        shown = tenants.environment(daemon.paths, {index: gpus.uuid(index) for index in daemon.options.devices})
        daemon.pid = processes.fork(
            lambda: Control(daemon.paths, daemon.options).run(write),
            arguments=("nvidia-cuda-mps-control", "-d", *(("-p", "3") if daemon.options.protocol == 3 else ())),
            environment=shown,
            keep=[write],
            own_session=True,
        )
        os.close(write)
        os.set_blocking(heard, False)
        until = time.monotonic() + READY_PATIENCE
        while not (said := _try_read(heard)):
            if said == b"" or time.monotonic() > until:
                raise RehearsalError(f"the control daemon {name!r} did not start")
            time.sleep(0.002)
        os.close(heard)

    def add(self, tenant: tenants.Tenant, *, wait: float) -> int:
        """Start a tenant; returns its pid once it is in its place, or after `wait` seconds (0: at once)."""
        return self.add_all([tenant], wait=wait)[0]

    def add_all(self, several: list[tenants.Tenant], *, wait: float) -> list[int]:
        """Start tenants, so many at a time as there are descriptors for; returns their pids in order."""
        batches = [several[first : first + AT_ONCE] for first in range(0, len(several), AT_ONCE)]
        return [pid for batch in batches for pid in self._add_batch(batch, wait=wait)]

    def _add_batch(self, several: list[tenants.Tenant], *, wait: float) -> list[int]:
        started = []
        for tenant in several:
            one = tenants.start(tenant, self.daemon(tenant.daemon).paths)
            place = self.places[one.pid] = Place(tenant=tenant, child=one.child, cgroups=[])
            started.append(one)
            if tenant.cgroup:
                try:
                    place.cgroups = tenants.place(one.pid, tenant.cgroup)
                except (OSError, RehearsalError):
                    processes.end(one.child)
                    raise
        until = time.monotonic() + wait
        for one in started:
            tenants.joined(one, until)
        return [one.pid for one in started]

    def remove(self, pid: int) -> None:
        """End a tenant of ours; returns when it is gone from /proc."""
        if pid not in self.places:
            raise RehearsalError(f"process {pid} is not one of this stack's tenants")
        processes.end(self.places[pid].child)
        until = time.monotonic() + 2.0
        while pid in self.places and time.monotonic() < until:
            self.bury()
            time.sleep(0.001)

    def bury(self) -> None:
        """Take note of each child that has ended."""
        while True:
            try:
                child, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not child:
                return
            for daemon in self.daemons.values():
                if daemon.pid == child:
                    daemon.pid = None
                    daemon.frozen = False
            for pid, place in list(self.places.items()):
                if place.child == child:
                    del self.places[pid]
                    exit_code = os.waitstatus_to_exitcode(status)
                    self.departed.append({"pid": pid, "name": place.tenant.name, "exit": exit_code})
                    tenants.unplace(place.cgroups)

    def leave(self) -> None:
        """End all that was started (measuring clients excepted) and remove all that was made."""
        for place in self.places.values():
            processes.end(place.child)
        for daemon in self.daemons.values():
            if daemon.pid is not None:
                processes.end(daemon.pid)
        until = time.monotonic() + 5.0
        while (self.places or any(daemon.pid for daemon in self.daemons.values())) and time.monotonic() < until:
            self.bury()
            time.sleep(0.002)
        clear(self.layout)


def _all_of(connection: socket.socket) -> bytes:
    said = b""
    while part := connection.recv(65536):
        said += part
    return said


def _try_read(descriptor: int) -> bytes | None:
    try:
        return os.read(descriptor, 64)
    except BlockingIOError:
        return None

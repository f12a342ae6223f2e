"""One connection: uvicorn's HTTP/1.1 over h11, with deadlines for those who say or read nothing.

uvicorn waits without end for a request's headers and for a slow reader, and writes a reply in three pieces. Here
a connection has until `header_seconds` to say what it wants (from its opening, and again from the first byte of
each later request), until `drain_seconds` to take a reply, and each reply leaves in one write.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from mpswatch.web.gate import Limits


class Door:
    """Counts connections, and knows which of them are idle and since when (the first is idle the longest)."""

    def __init__(self, limits: Limits, *, admits: Callable[[asyncio.BaseTransport], bool]) -> None:
        self.limits = limits
        self.admits = admits
        self.idle: OrderedDict[GuardedProtocol, None] = OrderedDict()
        self.open: set[GuardedProtocol] = set()
        self._handshaking: dict[int, float] = {}

    def __len__(self) -> int:
        # Nobody tells of a handshake that failed: it is over when its protocol is gone, and when its time is up (a
        # failed one may stay alive in a cycle until the garbage collector comes). The first has the least time left.
        now = asyncio.get_running_loop().time()
        while self._handshaking and next(iter(self._handshaking.values())) <= now:
            del self._handshaking[next(iter(self._handshaking))]
        return len(self.open) + len(self._handshaking)

    @property
    def full(self) -> bool:
        return len(self) >= self.limits.connections

    def knocked(self, protocol: GuardedProtocol) -> None:
        now = asyncio.get_running_loop().time()
        self._handshaking[id(protocol)] = now + self.limits.handshake_seconds
        weakref.finalize(protocol, self._handshaking.pop, id(protocol), None).atexit = False

    def entered(self, protocol: GuardedProtocol) -> None:
        self._handshaking.pop(id(protocol), None)
        self.open.add(protocol)
        self.idle[protocol] = None

    def left(self, protocol: GuardedProtocol) -> None:
        self.open.discard(protocol)
        self.idle.pop(protocol, None)

    def make_room(self) -> bool:
        """End the connection that has been idle the longest; False if all are at work."""
        if not self.idle:
            return False
        longest, _ = self.idle.popitem(last=False)
        longest.abort()  # off the list already: asyncio tells of its end later, and the next one needs another's place
        return True


class OneWrite(asyncio.Transport):
    """Passes on to another transport, and gathers what is written in one turn of the loop into one write."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if not data:
            return
        if not self._parts:
            self._loop.call_soon(self.flush)
        self._parts.append(bytes(data))

    def flush(self) -> None:
        if self._parts and not self._transport.is_closing():
            self._transport.write(b"".join(self._parts))
        self._parts.clear()

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        self._parts.clear()
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + sum(map(len, self._parts))

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401  # asyncio's signature
        return self._transport.get_extra_info(name, default)


class GuardedProtocol(H11Protocol):
    """uvicorn's protocol with deadlines. A connection is in one of three states: awaited, at work, drained."""

    def __init__(self, config: Config, server_state: ServerState, door: Door) -> None:
        super().__init__(config, server_state, {}, asyncio.get_running_loop())
        self._door = door
        self._timer: asyncio.TimerHandle | None = None
        self._awaiting = False
        self._asked_all = False
        door.knocked(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        self._door.entered(self)
        super().connection_made(OneWrite(transport, self.loop))
        if not self._door.admits(transport):
            transport.abort()
            return
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_timer(None)
        self._door.left(self)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn lets it run, and all of the connection stays as long

    def data_received(self, data: bytes) -> None:
        if not self.at_work:
            if not self._awaiting:
                self._await_headers()
            if self in self._door.idle:
                self._door.idle.move_to_end(self)
        self._receive(data)  # while at work: a pipelined request, which uvicorn reads when the reply is out

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio's: true keeps the transport open
        """The client sends no more. It may have closed, or only be done with asking: what it is owed still goes out."""
        self._asked_all = True
        if not self.at_work:
            self.transport.close()  # flushes: asyncio's own close does not know of what OneWrite holds
        # asyncio ends a TLS connection here whatever it is told, and complains when told otherwise
        return self.at_work and self.scheme == "http"

    def on_response_complete(self) -> None:
        self._door.idle[self] = None
        self._set_timer(self._door.limits.drain_seconds, self._abort_if_undrained)
        super().on_response_complete()
        self._note_work()  # a pipelined request may have begun
        if self._asked_all and not self.at_work:
            self.transport.close()

    @property
    def at_work(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def abort(self) -> None:
        self.transport.abort()

    def _receive(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except Exception:  # noqa: BLE001  # h11 refuses to answer in some states: this connection is over, no other
            self.abort()
        self._note_work()

    def _await_headers(self) -> None:
        self._awaiting = True
        self._set_timer(self._door.limits.header_seconds, self.abort)

    def _note_work(self) -> None:
        if not self.at_work or self not in self._door.idle:
            return
        self._awaiting = False
        self._door.idle.pop(self, None)
        # A reply that cannot go out, because an earlier one is not being read, holds its place so long and no longer.
        self._set_timer(self._door.limits.drain_seconds, self.abort)

    def _abort_if_undrained(self) -> None:
        if self.transport.get_write_buffer_size() > 0:
            self.abort()

    def _set_timer(self, seconds: float | None, action: Callable[[], None] | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None and action is not None:
            self._timer = self.loop.call_later(seconds, action)

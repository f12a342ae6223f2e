"""Talking with the launcher: every wait ends by its words, by the wish to stop, or by a deadline."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from mpswatch.names import clip, printable
from mpswatch.process.launch import Launched, LauncherGone
from mpswatch.sweep import messages
from mpswatch.sweep.messages import LINE_BYTES, NonsenseError, Said
from mpswatch.sweep.stop import Stop


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """Somebody asked the sweep to end."""


@dataclass(frozen=True, kw_only=True)
class Late:
    """The deadline passed in silence."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The launcher closed its end. `status` is its exit status (negative: a signal), None while it still lives."""

    status: int | None


@dataclass(frozen=True, kw_only=True)
class Babble:
    """Bytes that are no message. There is no way back in step: the conversation is over."""

    detail: str


Heard: TypeAlias = Said | Stopped | Late | Ended | Babble


class Talk(Protocol):
    """The launcher as one cell speaks with it."""

    @property
    def launched(self) -> Launched: ...

    def say(self, message: Mapping[str, object]) -> bool: ...

    def hear(self, *, until: float, heed_stop: bool = True) -> Heard: ...


class Conversation:
    """The one reader of the launcher's output."""

    def __init__(self, launched: Launched, stop: Stop) -> None:
        self.launched = launched
        self._stop = stop
        self._read = bytearray()
        self._over: Ended | Babble | None = None

    def say(self, message: Mapping[str, object]) -> bool:
        """Send one line; False when the launcher no longer reads."""
        try:
            self.launched.send(messages.write(message))
        except LauncherGone:
            return False
        return True

    def hear(self, *, until: float, heed_stop: bool = True) -> Heard:
        """The next thing that happens, at the latest at `until` (time.monotonic).

        With `heed_stop` a wish to stop comes before anything the launcher said; without it, it is not looked at.
        Once over, it stays over.
        """
        while True:
            if heed_stop and self._stop.requested:
                return Stopped()
            said = self._next()
            if said is not None:
                return said
            if self._over is not None:
                return self._over
            left = until - time.monotonic()
            if left <= 0:
                return Late()
            self._wait(left, heed_stop=heed_stop)

    def _next(self) -> Said | Babble | None:
        line, found, rest = self._read.partition(b"\n")
        if not found:
            if len(line) >= LINE_BYTES:
                self._over = Babble(detail=f"a line longer than {LINE_BYTES} bytes")
                self._read.clear()
                return self._over
            return None
        self._read = bytearray(rest)
        if len(line) >= LINE_BYTES:
            self._over = Babble(detail=f"a line longer than {LINE_BYTES} bytes")
        else:
            try:
                return messages.read(bytes(line))
            except NonsenseError as nonsense:
                self._over = Babble(detail=clip(f"{printable(str(nonsense))} in {bytes(line[:80])!r}", 400))
        self._read.clear()
        return self._over

    def _wait(self, seconds: float, *, heed_stop: bool) -> None:
        """Until there is something to read, or the wish to stop, or `seconds` are over; take what there is."""
        # poll, not select: a descriptor may be above 1023
        poll = select.poll()
        poll.register(self.launched.receive_fd, select.POLLIN)
        if heed_stop:
            poll.register(self._stop.fd, select.POLLIN)
        for fd, _ in poll.poll(max(1, round(seconds * 1000))):
            if fd == self.launched.receive_fd:
                self._take()

    def _take(self) -> None:
        try:
            read = os.read(self.launched.receive_fd, 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            read = b""
        if read:
            self._read += read
        else:
            # A last line without its newline is a line cut short: never a message.
            self._read.clear()
            self._over = Ended(status=self._status())

    def _status(self) -> int | None:
        """How the launcher ended: its descriptors close a moment before the kernel has its exit status."""
        until = time.monotonic() + 0.5
        while (status := self.launched.exited()) is None and time.monotonic() < until:
            time.sleep(0.005)
        return status

"""Percentages and memory limits, and who is given which, as recorded (tests/recordings: limits).

A default is for servers started later; a server knows a device by both its names, the daemon by the one that was set.
"""

from __future__ import annotations

import msgspec

from mpswatch.rehearsal import gpus, state

UNITS = {"G": 1 << 30, "M": 1 << 20, "K": 1 << 10}


class Given(msgspec.Struct, kw_only=True):
    """What a running server gives each client at most; memory by device."""

    percentage: float
    memory: dict[int, str]


class Limits:
    """The defaults of one control daemon, and what its running server was given."""

    def __init__(self, options: state.Options) -> None:
        self._devices = options.devices
        self.percentage = options.default_percentage
        ordinals = range(len(options.devices)) if options.memory_limit else ()
        self._memory = {str(number): options.memory_limit for number in ordinals}
        self._given: dict[int, Given] = {}

    def begin(self, server: int) -> None:
        """A server was started: what is the default now holds for it."""
        memory = {}
        for name, amount in self._memory.items():
            device = self._device(name)
            if device is not None:
                memory[device] = amount
        self._given = {server: Given(percentage=self.percentage, memory=memory)}

    def of(self, server: int) -> Given:
        return self._given[server]

    def default_memory(self, names: list[str]) -> str:
        return _line(self._memory.get(names[0]) if names else None)

    def memory(self, server: int, names: list[str]) -> str:
        device = self._device(names[0]) if names else None
        return _line(None if device is None else self._given[server].memory.get(device))

    def set(self, command: str, arguments: list[str]) -> str | None:
        """The reply to a command that sets one of these; None to any other."""
        match command, arguments:
            case "set_default_active_thread_percentage", [percentage]:
                self.percentage = float(percentage)
                return f"{self.percentage:.1f}\n"
            case "set_default_device_pinned_mem_limit", [name, amount]:
                self._memory[name] = amount
                return ""
            case (("set_active_thread_percentage" | "set_device_pinned_mem_limit"), [pid, *rest]):
                return self._set_on(pid, rest)
        return None

    def _set_on(self, pid: str, what: list[str]) -> str | None:
        given = next((given for server, given in self._given.items() if str(server) == pid), None)
        if given is None:
            return f"Server {pid} not found\n"
        match what:
            case [percentage]:
                given.percentage = float(percentage)
                return f"{given.percentage:.1f}\n"
            case [name, amount]:
                device = self._device(name)
                if device is not None:
                    given.memory[device] = amount
                return ""
        return None

    def _device(self, name: str) -> int | None:
        for number, index in enumerate(self._devices):
            if name in {str(number), gpus.uuid(index)}:
                return index
        return None


def _line(amount: str | None) -> str:
    """As printed: in whole units, 2500M as 2G; nothing at all where none is set."""
    if not amount:
        return ""
    size = int(amount[:-1]) * UNITS[amount[-1]]
    unit = next(unit for unit, scale in UNITS.items() if size >= scale)
    return f"{size // UNITS[unit]}{unit}\n"

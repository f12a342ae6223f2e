"""What systemd hears from a whole daemon, on a real datagram socket."""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path

import pytest


class Manager:
    """The service manager's end of NOTIFY_SOCKET."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))

    def messages(self, seconds: float) -> list[str]:
        """What arrives within that time."""
        found = []
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                found.append(self.socket.recv(4096).decode())
            except TimeoutError:
                break
        return found

    def wait_for(self, text: str, seconds: float = 30.0) -> str:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.socket.settimeout(left)
            message = self.socket.recv(4096).decode()
            if text in message:
                return message
        raise AssertionError(f"systemd never heard {text}")


@pytest.fixture
def manager(short_path):
    found = Manager(short_path / "notify")
    yield found
    found.socket.close()


def test_systemd_hears_ready_life_and_stopping(start, manager):
    daemon = start({"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "600000"}, sweep={"enabled": False})
    manager.wait_for("READY=1")
    manager.wait_for("STATUS=sweeps will not run: sweep.enabled is false")
    alive = [message for message in manager.messages(1.5) if message == "WATCHDOG=1"]
    assert len(alive) >= 4  # every third of the watchdog's time
    daemon.signal(signal.SIGHUP)
    manager.wait_for("RELOADING=1")
    manager.wait_for("READY=1")
    daemon.signal(signal.SIGTERM)
    manager.wait_for("STOPPING=1")
    assert daemon.wait() == 0


def test_a_frozen_daemon_does_not_say_that_it_lives(start, manager):
    daemon = start({"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "600000"}, sweep={"enabled": False})
    manager.wait_for("WATCHDOG=1")
    daemon.signal(signal.SIGSTOP)
    manager.messages(0.3)
    assert manager.messages(1.0) == []
    daemon.signal(signal.SIGCONT)
    manager.wait_for("WATCHDOG=1")


def test_no_child_of_ours_can_speak_for_us(start, stack, manager, until):
    daemon = start({"NOTIFY_SOCKET": str(manager.path)}, sweep={"iters": 20000})
    clients = until(lambda: stack.status()["daemons"]["default"]["attached_clients"])
    for pid in (*clients, int(Path(f"/proc/{clients[0]}/stat").read_text().rsplit(")", 1)[1].split()[1])):
        assert b"NOTIFY_SOCKET" not in Path(f"/proc/{pid}/environ").read_bytes()
    assert daemon.stop() == 0

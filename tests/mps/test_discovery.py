"""Control daemons found without being told, on a rehearsal dressed as real ones, and in fixture trees."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import pytest

from mpswatch.mps import discovery
from mpswatch.mps.discovery import DEFAULT_LOG_DIRECTORY, discover, log_directory, visible_devices
from mpswatch.mps.discovery import listening as listening_to
from mpswatch.proc import Processes


@pytest.fixture
def proc(tree):
    return tree


@pytest.fixture
def listening():
    """A pipe directory with listening sockets, as a control daemon leaves it."""
    with tempfile.TemporaryDirectory(prefix="mw-") as folder:
        sockets = []

        def make(name="pipe", files=("control", "control_privileged")):
            place = Path(folder) / name
            place.mkdir(parents=True)
            for file in files:
                listener = socket.socket(socket.AF_UNIX)
                listener.bind(str(place / file))
                listener.listen()
                sockets.append(listener)
            return place

        yield make
        for listener in sockets:
            listener.close()


def pipes(found):
    return [daemon.pipe_directory for daemon in found]


def test_a_daemon_is_found_by_its_listening_sockets_in_the_kernels_own_list(listening):
    place = listening()
    assert place in pipes(discover(Processes()))


def test_a_rehearsal_half_a_daemon_and_a_connected_socket_are_none(listening):
    rehearsal = listening("rehearsal", ("control", "control_privileged", "rehearsal"))
    half = listening("half", ("control",))
    assert not {rehearsal, half} & set(pipes(discover(Processes())))


def test_what_the_sockets_do_not_show_is_found_in_the_environment(listening, proc):
    place = listening()
    (proc.root / "net").mkdir()
    (proc.root / "net/unix").write_text("Num RefCount Protocol Flags Type St Inode Path\n")
    environment = (f"CUDA_MPS_PIPE_DIRECTORY={place}".encode(), b"CUDA_MPS_LOG_DIRECTORY=/srv/logs")
    proc.add(7, command=b"nvidia-cuda-mps", arguments=(b"nvidia-cuda-mps-control", b"-d"), environment=environment)
    (place / "nvidia-cuda-mps-control.pid").write_text("7")
    (found,) = discover(Processes(proc.root))
    assert (found.pipe_directory, found.log_directory) == (place, Path("/srv/logs"))


@pytest.mark.parametrize(("uid", "option", "found"), [(0, b"-p3", True), (1000, b"-p3", False), (0, b"-f", False)])
def test_roots_daemon_of_protocol_3_has_a_default_of_its_own(listening, proc, monkeypatch, uid, option, found):  # noqa: PLR0917 -- fixtures
    place = listening(files=("control",))
    monkeypatch.setattr(discovery, "ROOTS_PIPE_DIRECTORY_3", place)
    monkeypatch.setattr(discovery, "DEFAULT_PIPE_DIRECTORY", place.parent / "nowhere")
    command = (b"nvidia-cuda-mps-control", b"-d", option)
    proc.add(7, command=b"nvidia-cuda-mps", uid=uid, arguments=command, environment=(b"A=b",))
    assert pipes(discover(Processes(proc.root))) == ([place] if found else [])


def test_lines_that_are_nonsense_are_passed_over(listening, proc):
    place = listening()
    (proc.root / "net").mkdir()
    line = "0000000000000000: 00000002 00000000 {} 0001 01 12345 {}\n"
    text = "garbage\n" + line.format("zz", "/x/control")
    text += "".join(line.format("00010000", place / name) for name in ("control", "control_privileged"))
    (proc.root / "net/unix").write_text(text)
    assert pipes(discover(Processes(proc.root))) == [place]


def test_logs_are_where_the_daemon_says_beside_the_device_plugins_pipes_or_unknown(listening, proc, tmp_path):
    processes = Processes(proc.root)
    plugin = listening("nvidia.com/gpu/pipe")
    (plugin.parent / "log").mkdir()
    assert log_directory(plugin, processes) == plugin.parent / "log"
    plain = listening("plain")
    assert log_directory(plain, processes) is None
    (plain / "nvidia-cuda-mps-control.pid").write_text("7")
    proc.add(7, command=b"nvidia-cuda-mps", arguments=(b"nvidia-cuda-mps-control",), environment=(b"A=b",))
    assert log_directory(plain, processes) == DEFAULT_LOG_DIRECTORY


def test_visible_devices_are_the_daemons_own_and_not_another_processs(listening, proc):
    processes = Processes(proc.root)
    place = listening()
    (place / "nvidia-cuda-mps-control.pid").write_text("7")
    environment = (b"CUDA_VISIBLE_DEVICES=GPU-1, GPU-2",)
    proc.add(7, command=b"nvidia-cuda-mps", arguments=(b"nvidia-cuda-mps-control",), environment=environment)
    assert visible_devices(place, processes) == ("GPU-1", "GPU-2")
    (place / "nvidia-cuda-mps-control.pid").write_text("8")
    proc.add(8, command=b"python3", environment=environment)
    assert visible_devices(place, processes) is None


def test_rehearsals_are_found_alone_by_who_asks_for_them(listening):
    real, rehearsal = listening(), listening("rehearsal", ("control", "control_privileged", "rehearsal"))
    found = listening_to(Processes(), rehearsals=True)
    assert rehearsal in found
    assert real not in found

"""Control daemons that come and go while mpswatch runs, in a made-up /proc with real sockets."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import pytest

from mpswatch.config import load
from mpswatch.config.shape import as_plain
from mpswatch.daemon.discovering import DROPPED_AFTER, MOST, Discovering
from mpswatch.daemon.parts import make_parts, remake_parts
from mpswatch.proc import Processes

FILES = ("control", "control_privileged")
LINE = "0000000000000000: 00000002 00000000 00010000 0001 01 12345 {}\n"


class Host:
    """Control daemons by name, each with two sockets in a pipe directory; `now` is the clock."""

    def __init__(self, folder, tree):
        self.folder = folder
        self.tree = tree
        self.now = 0.0
        self.sockets = {}
        self.unlisted = set()
        (tree.root / "net").mkdir()
        self.list()

    def start(self, name, *, listed=True, pid=None):
        place = self.folder / name
        place.mkdir(exist_ok=True)
        self.sockets[name] = []
        for file in FILES:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(place / file))
            self.sockets[name].append(listener)
        if not listed:
            self.unlisted.add(name)
        if pid is not None:
            environment = (f"CUDA_MPS_PIPE_DIRECTORY={place}".encode(),)
            self.tree.add(
                pid, command=b"nvidia-cuda-mps", arguments=(b"nvidia-cuda-mps-control", b"-d"), environment=environment
            )
        self.list()
        return str(place)

    def end(self, name):
        for listener in self.sockets.pop(name, []):
            listener.close()
        for file in (self.folder / name).iterdir():
            file.unlink()
        self.list()

    def list(self):
        places = [self.folder / name / file for name in self.sockets if name not in self.unlisted for file in FILES]
        (self.tree.root / "net/unix").write_text("header\n" + "".join(LINE.format(place) for place in places))


@pytest.fixture
def host(shared_code, tmp_path):
    with tempfile.TemporaryDirectory(prefix="mw-") as folder:
        made = Host(Path(folder), shared_code("proc/tree.py").ProcTree(tmp_path / "proc"))
        yield made
        for name in list(made.sockets):
            made.end(name)


@pytest.fixture
def look(host, monkeypatch):
    """Look after some seconds; gives the pipe directories that are watched."""
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/nowhere/mps")
    discovering = Discovering(Processes(host.tree.root), monotonic=lambda: host.now)

    def look(after=15.0, **how):
        host.now += after
        return [str(address.pipe_directory) for address in discovering.look(**how)]

    return look


def test_where_none_runs_the_default_is_watched_until_there_is_one(host, look):
    assert look() == look() == ["/nowhere/mps"]
    a = host.start("a")
    assert look() == [a]


def test_one_that_comes_later_is_watched_from_the_next_look_on(host, look):
    a = host.start("a")
    assert look() == [a]
    b = host.start("b")
    assert look() == [a, b]


def test_one_that_is_gone_is_watched_for_a_quarter_of_an_hour_more_and_then_no_more(host, look):
    a, b = host.start("a"), host.start("b")
    assert look() == [a, b]
    host.end("b")
    assert look(DROPPED_AFTER - 1) == [a, b]
    assert look(1) == [a]
    assert look() == [a]


def test_one_that_is_back_in_time_has_its_quarter_of_an_hour_again(host, look):
    a, b = host.start("a"), host.start("b")
    look()
    host.end("b")
    look(DROPPED_AFTER - 1)
    host.start("b")
    assert look() == [a, b]
    host.end("b")
    assert look(DROPPED_AFTER - 1) == [a, b]


def test_the_last_one_is_never_dropped(host, look):
    host.start("a")
    b = host.start("b")
    look()
    host.end("a")
    look(60)
    host.end("b")
    assert look(10 * DROPPED_AFTER) == [b], "whoever was there last"


def test_nobody_is_dropped_while_a_sweep_may_be_at_work_under_one(host, look):
    a, b = host.start("a"), host.start("b")
    look()
    host.end("b")
    assert look(2 * DROPPED_AFTER, may_drop=False) == [a, b]
    assert look(0) == [a]


def test_one_that_the_kernels_list_does_not_show_is_found_in_the_environment_now_and_then(host, look):
    a = host.start("a")
    assert look() == [a]
    hidden = host.start("hidden", listed=False, pid=7)
    seen = [look() for _ in range(20)]
    assert seen[0] == [a], "all of /proc is not read at every look"
    assert seen[-1] == [a, hidden]


def test_whatever_changes_in_the_kernels_list_has_all_of_proc_read_at_once(host, look):
    a = host.start("a")
    look()
    hidden, b = host.start("hidden", listed=False, pid=7), host.start("b")
    assert look() == sorted([a, b, hidden])


def test_logs_are_looked_for_anew_when_a_daemon_is_back(host, monkeypatch):
    discovering = Discovering(Processes(host.tree.root), monotonic=lambda: host.now)
    (host.folder / "pipe").mkdir()
    host.start("pipe")
    (address,) = discovering.look()
    assert address.log_directory is None
    host.end("pipe")
    discovering.look()
    (host.folder / "log").mkdir()
    host.start("pipe")
    (address,) = discovering.look()
    assert address.log_directory == host.folder / "log"


def test_strangers_who_listen_everywhere_cannot_make_it_watch_without_end(host, look):
    first = host.start("z")
    look()
    for number in range(MOST + 5):
        host.start(f"many-{number}")
    host.start("new\x1bline")
    watched = look()
    assert len(watched) == MOST
    assert first in watched, "who was there before stays"
    assert all(name.isprintable() for name in watched)


def test_daemons_auto_watches_what_runs_here_and_says_that_it_looks(tmp_path):
    file = tmp_path / "mpswatch.yml"
    file.write_text(f"daemons: auto\narchive: {{directory: {tmp_path}/archive}}\n")
    config = load(file)
    assert as_plain(config)["daemons"] == "auto"
    with tempfile.TemporaryDirectory(prefix="mw-") as folder:
        listeners = [socket.socket(socket.AF_UNIX) for _ in FILES]
        for name, listener in zip(FILES, listeners, strict=True):
            listener.bind(f"{folder}/{name}")
            listener.listen()
        parts = make_parts(config, simulated=False)
        assert folder in {address.name for address in parts.addresses}
        assert remake_parts(parts, config).addresses == parts.addresses
        for listener in listeners:
            listener.close()


def test_a_reload_that_names_daemons_looks_for_none_any_more(tmp_path):
    file = tmp_path / "mpswatch.yml"
    file.write_text("daemons: auto\n")
    before = make_parts(load(file), simulated=False)
    file.write_text("daemons: [{pipe_directory: /run/a}]\n")
    after = remake_parts(before, load(file))
    assert (after.discovering, [address.name for address in after.addresses]) == (None, ["/run/a"])

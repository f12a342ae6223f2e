"""containerd's database, read as it stands in the file: a recording, nonsense, a writer that overtakes, a real one."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest

from mpswatch.identity import bolt
from mpswatch.identity.bolt import BoltError, bucket

RECORDED = (
    Path(__file__).parent
    / "trees/kubernetes-containerd-recorded/host/var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db"
)
SANDBOX = b"51ac72646e8ac80b5cf663f0303109976832a08d185c3f74031ac60b995d7803"
LABELS = (b"v1", b"k8s.io", b"containers", SANDBOX, b"labels")
PAGE = 4096


@pytest.fixture
def database(tmp_path):
    return Path(shutil.copy(RECORDED, tmp_path / "meta.db"))


def test_the_labels_of_a_recorded_pod_are_read():
    found = bucket(RECORDED, *LABELS)
    assert found is not None
    assert (found[b"app"], found[b"pod-template-hash"]) == (b"embedder", b"7d9c5b6f4")
    assert found[b"io.kubernetes.pod.name"] == b"embedder-7d9c5b6f4-x2x9k"


@pytest.mark.parametrize("names", [(b"v2",), (b"v1", b"k8s.io", b"containers", b"a3f1"), (*LABELS, b"app")])
def test_a_bucket_that_is_not_there_is_none(names):
    assert bucket(RECORDED, *names) is None


def test_it_is_read_while_another_holds_the_lock_and_leaves_no_lock_behind(database):
    with database.open("rb") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert bucket(database, *LABELS)
    with database.open("rb") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_nonsense_in_any_place_is_an_error_or_another_answer_but_never_anything_else(database):
    data, dice = RECORDED.read_bytes(), random.Random(5)
    for _ in range(300):
        broken = bytearray(data)
        for _ in range(8):
            place = dice.randrange(len(broken))
            broken[place] = dice.randrange(256)
        page = dice.randrange(len(broken) // PAGE) * PAGE
        broken[page + 8 : page + 16] = dice.randbytes(8)
        database.write_bytes(broken[: dice.choice([None, dice.randrange(len(broken))])])
        try:
            bucket(database, *LABELS)
        except BoltError:
            continue


def test_a_page_that_leads_back_to_itself_ends(database):
    data = bytearray(RECORDED.read_bytes())
    (root,) = struct.unpack_from("<Q", data, 16 + 16)
    struct.pack_into("<Q HHI IIQ", data, root * PAGE, root, 1, 1, 0, 16, 0, root)
    database.write_bytes(data)
    with pytest.raises(BoltError, match="too many pages"):
        bucket(database, *LABELS)


def test_a_fifo_and_a_link_hold_nobody_up(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(RECORDED)
    for name in ("fifo", "link"):
        with pytest.raises((OSError, BoltError)):
            bucket(tmp_path / name, *LABELS)


def commit(path: Path, transaction: int, *, whole: bool) -> None:
    """What a writer leaves: a newer transaction, with its pages (`whole`) or with others in their place."""
    data = bytearray(RECORDED.read_bytes())
    place = (transaction % 2) * PAGE + 16
    meta = data[16 : 16 + 56]  # the recording's newest stands first
    struct.pack_into("<Q", meta, 48, transaction)
    data[place : place + 64] = meta + struct.pack("<Q", bolt._fnv(bytes(meta)))
    if not whole:
        data[2 * PAGE :] = bytes(len(data) - 2 * PAGE)
    with path.open("r+b") as file:
        file.write(data)


@pytest.fixture
def overtaken(database, monkeypatch):
    """Has a writer commit right after each look at the newest transaction, so often."""
    read = os.pread

    def begin(times):
        left, transaction = [times], [100]

        def pread(descriptor, size, offset):
            found = read(descriptor, size, offset)
            if left[0] > 0 and offset == 65536 + 16:  # the last place of the first look
                left[0] -= 1
                transaction[0] += 1
                commit(database, transaction[0], whole=left[0] == 0)
            return found

        monkeypatch.setattr(os, "pread", pread)

    return begin


def test_a_reader_that_is_overtaken_reads_again(database, overtaken):
    expected = bucket(database, *LABELS)
    overtaken(3)
    assert bucket(database, *LABELS) == expected


def test_one_that_is_overtaken_again_and_again_says_so(database, overtaken):
    overtaken(1000)
    with pytest.raises(BoltError, match="too quickly"):
        bucket(database, *LABELS)


@pytest.fixture
def containerd():
    """A real containerd with room of its own: its database, and `ctr` for it."""
    with tempfile.TemporaryDirectory(prefix="mw-") as folder:
        home = Path(folder)
        (home / "rootfs").mkdir()
        (home / "config.toml").write_text(
            f'version = 2\nroot = "{home}/root"\nstate = "{home}/state"\n[grpc]\naddress = "{home}/s"\n'
            'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
        )
        with (home / "log").open("wb") as log:
            program = subprocess.Popen(["containerd", "-c", home / "config.toml"], stdout=log, stderr=log)

        def ctr(*arguments):
            return subprocess.run(
                ["ctr", "-a", home / "s", "-n", "k8s.io", *arguments], check=False, capture_output=True, text=True
            )

        try:
            end = time.monotonic() + 20
            while ctr("version").returncode != 0:
                assert time.monotonic() < end, (home / "log").read_text()
                time.sleep(0.1)
            yield home / "root/io.containerd.metadata.v1.bolt/meta.db", home / "rootfs", ctr
        finally:
            program.terminate()
            program.wait(20)


@pytest.mark.part("containerd", "ctr")
def test_a_real_one_is_read_right_while_it_makes_and_removes_containers(containerd):
    database, rootfs, ctr = containerd

    def make(number):
        label = f"app=service-{number}"
        done = ctr("containers", "create", "--rootfs", "--label", label, rootfs, f"{number:064x}", "/bin/true")
        assert done.returncode == 0, done.stderr

    def labels(number):
        return bucket(database, b"v1", b"k8s.io", b"containers", b"%064x" % number, b"labels")

    def churn():
        for number in range(1, 80):
            make(number)
            if number % 2:
                ctr("containers", "rm", f"{number:064x}")

    make(1000)
    writer = threading.Thread(target=churn)
    writer.start()
    reads = 0
    while writer.is_alive():
        assert labels(1000) == {b"app": b"service-1000"}
        reads += 1
        time.sleep(0.002)
    assert reads > 50
    assert [labels(number) for number in (2, 78)] == [{b"app": b"service-2"}, {b"app": b"service-78"}]
    assert labels(77) is None

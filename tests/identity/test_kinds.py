"""Every kind of stack: what its cgroup and its files tell (trees/README.md)."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from mpswatch.documents import Reason
from mpswatch.identity.cgroup import Place, place

TREES = Path(__file__).parent / "trees"
KINDS = sorted(folder.name for folder in TREES.iterdir() if folder.is_dir())
LABELS = ("com.example.team",)
A, POD = "a3f1" * 16, "6d3f2c1e-8a4b-4c5d-9e7f-1a2b3c4d5e6f"


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_stack_is_told(kind, add, who):
    add(42, (TREES / kind / "cgroup").read_bytes(), uid=1000)
    found = msgspec.to_builtins(who(42, root=TREES / kind / "host", label_keys=LABELS)[42].identity)
    expected = json.loads((TREES / kind / "expected.json").read_text())
    assert {key: found[key] for key in expected} == expected


def test_a_container_whose_files_cannot_be_read_is_known_by_its_id_and_says_why(add, who, tmp_path):
    add(42, f"0::/system.slice/docker-{A}.scope\n".encode())
    identity = who(42)[42].identity
    assert identity.container_id == A
    assert identity.container_name is None
    assert identity.unknown["container_name"] is Reason.NOT_RECORDED


def test_a_pod_that_the_kubelet_does_not_name_is_known_by_its_uid_and_says_why(add, who):
    add(42, f"0::/kubepods/pod{POD}/{A}\n".encode())
    identity = who(42)[42].identity
    assert identity.pod_uid == POD
    assert identity.unknown["pod_name"] is identity.unknown["pod_namespace"] is Reason.NOT_RECORDED


@pytest.mark.parametrize(
    "content",
    [b"", b"no json", b"[]", b"null", b'{"Name": 7, "Config": {"Labels": ["a"]}}', b"[" * 100_000, b'{"Config": "x"}'],
)
def test_a_file_that_is_not_what_it_should_be_says_nothing(content, add, who, tmp_path):
    folder = tmp_path / "host/var/lib/docker/containers" / A
    folder.mkdir(parents=True)
    (folder / "config.v2.json").write_bytes(content)
    add(42, f"0::/docker/{A}\n".encode())
    assert who(42)[42].identity.container_name is None


def test_a_users_own_podman_holds_nobody_up_with_a_fifo_and_leads_nobody_elsewhere(add, who, tmp_path):
    import os

    host = tmp_path / "host"
    storage = host / "home/erin/.local/share/containers/storage/overlay-containers"
    storage.mkdir(parents=True)
    (host / "etc").mkdir()
    (host / "etc/passwd").write_text("erin:x:1000:1000::/home/erin:/bin/bash\n")
    os.mkfifo(storage / "containers.json")
    (storage / A / "userdata").mkdir(parents=True)
    (storage / A / "userdata/config.json").symlink_to("/etc/passwd")
    add(42, f"0::/user.slice/libpod-{A}.scope\n".encode(), uid=1000)
    assert who(42)[42].identity.container_name is None


def test_names_that_others_chose_come_out_on_one_line(add, who, tmp_path):
    folder = tmp_path / "host/var/lib/docker/containers" / A
    folder.mkdir(parents=True)
    (folder / "config.v2.json").write_text(json.dumps({"Name": "/evil\n\x1b[31mname", "Config": {"Image": "x" * 900}}))
    add(42, f"0::/docker/{A}\n".encode())
    identity = who(42)[42].identity
    assert identity.container_name == "evil\\x0a\\x1b[31mname"
    assert len(identity.image) == 200


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"nonsense", b"0::", b"0::relative", b"\xff\xfe::/\xff.service\n", b":" * 99]
)
def test_lines_that_are_no_cgroups_tell_nothing_and_break_nothing(data):
    found = place(data)
    assert found.containers == ()
    assert found.pod_uid is None
    assert place(b"0::/\n") == Place()

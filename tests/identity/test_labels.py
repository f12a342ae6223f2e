"""Labels of pods: where each runtime keeps them, and what is said where they cannot be known."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mpswatch.documents import Reason
from mpswatch.identity import bolt
from mpswatch.identity.containers import ContainerFiles

TREES = Path(__file__).parent / "trees"
RECORDED = TREES / "kubernetes-containerd-recorded"
SERVER = "bfa3039c24f79d887ac4f495cba483c5acfc9f8a57473fcabaac2cc139ff3239"
A = "a3f1" * 16
KEYS = ("app",)


def facts(host, container_id=SERVER, pod_uid=None):
    return ContainerFiles(host).facts(container_id, pod_uid=pod_uid, home=None)


@pytest.mark.parametrize(
    ("state", "store"),
    [
        ("run/k3s/containerd", "var/lib/rancher/k3s/agent/containerd"),
        ("run/k3s/containerd", "var/lib/rancher/rke2/agent/containerd"),
        ("run/k0s/containerd", "var/lib/k0s/containerd"),
    ],
)
def test_distributions_that_bring_their_own_containerd_are_known(state, store, tmp_path):
    for there, here in ((state, "run/containerd"), (store, "var/lib/containerd")):
        (tmp_path / there).parent.mkdir(parents=True)
        (tmp_path / there).symlink_to(RECORDED / "host" / here)
    found = facts(tmp_path)
    assert (found.pod_name, found.labels["app"], found.labels_known) == ("embedder-7d9c5b6f4-x2x9k", "embedder", True)


@pytest.mark.parametrize(
    ("kind", "container_id"), [("kubernetes-cri-o-v2", A), ("kubernetes-docker-v1", A), (RECORDED.name, SERVER)]
)
def test_a_pods_labels_come_from_its_sandbox_and_the_containers_own_stay(kind, container_id):
    found = facts(TREES / kind / "host", container_id)
    assert found.labels_known
    assert (found.labels["app"], found.labels["io.kubernetes.container.name"]) == ("embedder", "server")


@pytest.mark.parametrize(
    ("kind", "container_id", "sandbox"),
    [
        ("kubernetes-cri-o-v2", A, "run/containers/storage/overlay-containers/" + "5a9d" * 16),
        ("kubernetes-docker-v1", A, "var/lib/docker/containers/" + "5a9d" * 16),
        (RECORDED.name, SERVER, "var/lib/containerd"),
    ],
)
def test_without_the_sandbox_the_labels_are_unknown_and_all_else_is_known(kind, container_id, sandbox, tmp_path):
    host = tmp_path / "host"
    shutil.copytree(TREES / kind / "host", host)
    shutil.rmtree(host / sandbox)
    found = facts(host, container_id)
    assert (found.name, found.labels_known, "app" in found.labels) == ("server", False, False)


def test_containerds_database_alone_tells_everything(tmp_path):
    (tmp_path / "var/lib").mkdir(parents=True)
    (tmp_path / "var/lib/containerd").symlink_to(RECORDED / "host/var/lib/containerd")
    found = facts(tmp_path)
    assert (found.name, found.image, found.runtime) == ("server", "docker.io/library/pause:1", "containerd")
    assert (found.pod_namespace, found.pod_name) == ("search", "embedder-7d9c5b6f4-x2x9k")
    assert (found.labels["app"], found.labels_known) == ("embedder", True)


def test_a_database_that_is_none_leaves_what_the_bundle_says(tmp_path):
    shutil.copytree(RECORDED / "host", tmp_path / "host")
    database = tmp_path / "host/var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db"
    database.write_bytes(b"SQLite format 3\0" + bytes(90000))
    found = facts(tmp_path / "host")
    assert (found.name, found.pod_name, found.labels_known) == ("server", "embedder-7d9c5b6f4-x2x9k", False)


def test_labels_that_nobody_asks_for_are_not_missing(add, who):
    add(42, (RECORDED / "cgroup").read_bytes())
    identity = who(42)[42].identity
    assert "labels" not in identity.unknown
    assert who(42, label_keys=KEYS)[42].identity.unknown["labels"] is Reason.NOT_RECORDED


def test_a_process_in_no_container_and_one_in_lxc_have_no_labels(add, who):
    add(42, b"0::/system.slice/embedder.service\n")
    add(43, b"0::/lxc.payload.embedder/init.scope\n")
    for known in who(42, 43, label_keys=KEYS).values():
        assert known.labels_known
        assert "labels" not in known.identity.unknown


def test_what_may_not_be_read_says_so(add, who, tmp_path, monkeypatch):
    import os

    opened = os.open

    def refused(path, *arguments, **named):
        if "containerd" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **named)

    monkeypatch.setattr(os, "open", refused)
    add(42, (RECORDED / "cgroup").read_bytes())
    known = who(42, root=RECORDED / "host", label_keys=KEYS)[42]
    assert known.identity.unknown["labels"] is Reason.PERMISSION
    assert not known.labels_known


def test_the_workers_of_one_container_cost_its_files_once(add, who, monkeypatch):
    reads = []
    read = bolt.bucket
    monkeypatch.setattr(bolt, "bucket", lambda *names: reads.append(names[-2]) or read(*names))
    for pid in range(100, 120):
        add(pid, (RECORDED / "cgroup").read_bytes())
    found = who(*range(100, 120), root=RECORDED / "host", label_keys=KEYS)
    assert {known.identity.labels["app"] for known in found.values()} == {"embedder"}
    assert len(reads) == 4, "the container's record, labels and extensions, and its sandbox's labels"


@pytest.mark.parametrize("sandbox", ["../../../../elsewhere", "/elsewhere", "5a9d"])
def test_a_sandbox_that_is_no_id_leads_nowhere(sandbox, tmp_path):
    own = {"io.kubernetes.cri-o.Labels": "{}", "io.kubernetes.cri-o.SandboxID": sandbox}
    pods = {"io.kubernetes.cri-o.Labels": '{"app": "embedder"}'}
    storage = tmp_path / "run/containers/storage/overlay-containers"
    for folder, notes in ((storage / A, own), (storage / sandbox, pods)):
        if tmp_path in folder.resolve().parents:
            (folder / "userdata").mkdir(parents=True)
            (folder / "userdata/config.json").write_text(json.dumps({"annotations": notes}))
    found = facts(tmp_path, A)
    assert (found.labels_known, "app" in found.labels) == (False, False)


def test_a_container_whose_files_come_late_is_read_again(tmp_path):
    files = ContainerFiles(tmp_path)
    assert files.facts(A, pod_uid=None, home=None).name is None
    folder = tmp_path / "var/lib/docker/containers" / A
    folder.mkdir(parents=True)
    (folder / "config.v2.json").write_text(json.dumps({"Name": "/late", "Config": {"Labels": {"app": "x"}}}))
    assert files.facts(A, pod_uid=None, home=None).name == "late"

"""The doctor's lines about patterns and waiting clients, and which GPUs a daemon's own setting lets it sweep."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from mpswatch.daemon.doctor_tenants import labels, patterns, waiting
from mpswatch.daemon.targets import targets
from mpswatch.documents import ExpectationLook, Reason, Waiting, WaitingClient
from mpswatch.expectations import Expectation, Expectations, Pattern
from mpswatch.identity.sources import label_sources

_spec = importlib.util.spec_from_file_location("doctor_facts", Path(__file__).parents[1] / "latest/facts.py")
facts = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(facts)


def lines(*looks, tenants=()):
    return {line.what: line for line in patterns(facts.poll(tenants=facts.known(tenants), expectations=looks))}


def test_it_lists_what_matches_what():
    tenants = (facts.tenant(7, "managed", expectations=("embedder",)), facts.tenant(8, "foreign", welcome="monitoring"))
    said = lines(
        ExpectationLook(name="embedder", minimum=1, matched=1, managed=1),
        ExpectationLook(name="monitoring", minimum=None, matched=1),
        tenants=tenants,
    )
    assert (said["expected embedder"].mark, said["welcome monitoring"].mark) == ("good", "good")
    assert "7 (managed, program-7)" in said["expected embedder"].detail
    assert "8 (foreign, program-8)" in said["welcome monitoring"].detail


def test_escaped_missing_and_mistaken_patterns_are_to_be_mended():
    said = lines(
        ExpectationLook(name="a", minimum=1, matched=1, escaped=1),
        ExpectationLook(name="b", minimum=1, matched=0),
        ExpectationLook(name="c", minimum=3, matched=1, managed=1),
        ExpectationLook(name="d", minimum=None, matched=0),
        ExpectationLook(name="desktop", minimum=None, matched=0),
    )
    assert [said[f"expected {name}"].mark for name in "abc"] == ["mend", "mend", "mend"]
    assert "ESCAPED" in said["expected a"].detail
    assert said["welcome d"].mark == "note"
    assert "welcome desktop" not in said


BY_LABEL = Expectations(expected=(Expectation(name="embedder", pattern=Pattern(wanted={"label": "app=embedder"})),))


def about_labels(host, *tenants, what=BY_LABEL):
    return list(labels(what, facts.poll(tenants=facts.known(tenants)), label_sources(host)))


def test_where_labels_would_be_read_is_named_for_each_runtime(tmp_path):
    (tmp_path / "var/lib/docker/containers").mkdir(parents=True)
    database = tmp_path / "var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db"
    database.parent.mkdir(parents=True)
    database.symlink_to("meta.db")  # a loop: what may not be read, for root as well
    containerd, docker = about_labels(tmp_path)
    assert (containerd.mark, docker.mark) == ("mend", "good")
    assert str(database) in containerd.detail
    assert "namespace" in containerd.remedy


def test_without_any_runtimes_files_a_pattern_by_label_matches_nobody(tmp_path):
    (line,) = about_labels(tmp_path)
    assert "matches nobody" in line.detail
    assert "tenants.host_root" in line.remedy
    assert about_labels(tmp_path, what=Expectations()) == [], "nobody asks for a label"


def test_a_pattern_that_can_never_match_is_named_with_whom(tmp_path):
    (tmp_path / "var/lib/docker/containers").mkdir(parents=True)
    _, line = about_labels(tmp_path, facts.tenant(7, "foreign", undecided=("embedder",)), facts.tenant(8, "foreign"))
    assert line.mark == "mend"
    assert "embedder can never match 7 (foreign, program-7): " in line.detail


def test_an_escape_is_said_whatever_else_is_not_known():
    look = ExpectationLook(name="a", minimum=1, matched=1, escaped=1, unknown_reason=Reason.PERMISSION)
    assert "ESCAPED" in lines(look)["expected a"].detail


def test_somebody_who_waits_is_named_and_a_log_that_is_not_read_is_said():
    who = Waiting(clients=(WaitingClient(pid=5, uid=1001),), shutdown_armed=True)
    (line,) = waiting(facts.daemon(waiting=who))
    assert line.mark == "mend"
    assert "pid 5 of uid 1001" in line.detail
    (line,) = waiting(facts.daemon(waiting=None, unknown={"waiting": Reason.NOT_RECORDED}))
    assert line.mark == "note"
    (line,) = waiting(facts.daemon())
    assert line.mark == "good"


@pytest.mark.parametrize(
    ("visible", "swept"),
    [
        (None, {"GPU-aaaa", "GPU-bbbb"}),
        (("1",), {"GPU-bbbb"}),
        (("GPU-aa",), {"GPU-aaaa"}),
        (("GPU-bbbb", "0"), {"GPU-aaaa", "GPU-bbbb"}),
        (("nonsense",), {"GPU-aaaa", "GPU-bbbb"}),
    ],
)
def test_a_daemons_visible_devices_limit_what_is_swept_under_it(visible, swept):
    looks = tuple(
        facts.gpu_look(gpu=facts.gpu(uuid, index=index), processes=facts.known(()))
        for index, uuid in enumerate(("GPU-aaaa", "GPU-bbbb"))
    )
    snapshot = facts.poll(
        daemons=(facts.daemon(visible_devices=visible, servers=facts.known(())),),
        gpus=facts.known(looks),
        tenants=facts.known(()),
    )
    assert {target.gpu_uuid for target in targets(snapshot)} == swept

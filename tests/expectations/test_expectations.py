"""Which services must be managed, who has escaped, and who is welcome."""

from __future__ import annotations

import dataclasses

import pytest

from mpswatch.documents import Reason, Tenant, TenantIdentity
from mpswatch.expectations import (
    DESKTOP,
    Expectation,
    Expectations,
    Pattern,
    Process,
    Welcome,
    contradictions,
    counted,
    desktop,
    marked,
)
from mpswatch.expectations import judged as verdict

GPU = "GPU-1"


def tenant(pid, kind, *, name="python3", gpu=GPU, **identity):
    return Tenant(
        pid=pid,
        start_ticks=pid * 10,
        gpu_uuid=gpu,
        kind=kind,
        process_name=name,
        identity=TenantIdentity(**identity),
        unknown={"kind": Reason.DAEMON_SILENT} if kind == "unresolved" else {},
    )


def expected(name="embedder", minimum=1, **wanted):
    return Expectation(name=name, pattern=Pattern(wanted=wanted), minimum=minimum)


def welcome(name="monitoring", **wanted):
    return Welcome(name=name, patterns=(Pattern(wanted=wanted),))


EMBEDDER = Expectations(expected=(expected(unit="embedder*.service", minimum=2),))


def judged(tenants, what, processes=None):
    processes = {t.pid: Process(name=t.process_name, identity=t.identity) for t in tenants} | (processes or {})
    found = marked(tenants, {pid: verdict(process, what) for pid, process in processes.items()})
    return found, {look.name: look for look in counted(found, what, None)}


def test_managed_processes_of_a_service_are_counted():
    found, looks = judged(
        [tenant(1, "managed", unit="embedder@0.service"), tenant(2, "managed", unit="ranker.service")], EMBEDDER
    )
    assert [t.expectations for t in found] == [("embedder",), ()]
    assert (looks["embedder"].managed, looks["embedder"].minimum, looks["embedder"].escaped) == (1, 2, 0)


def test_an_expected_service_outside_mps_has_escaped_and_stays_foreign():
    found, looks = judged([tenant(1, "foreign", unit="embedder@0.service")], EMBEDDER)
    assert (found[0].kind, found[0].expectations) == ("foreign", ("embedder",))
    assert (looks["embedder"].escaped, looks["embedder"].managed) == (1, 0)


def test_a_process_on_two_gpus_is_two_rows_and_one_client():
    rows = [tenant(1, "managed", gpu=gpu, unit="embedder@0.service") for gpu in ("GPU-1", "GPU-2")]
    found, looks = judged(rows, EMBEDDER)
    assert len(found) == 2
    assert looks["embedder"].managed == 1


def test_while_nobody_can_say_whether_it_is_managed_the_counts_are_not_known():
    _, looks = judged([tenant(1, "unresolved", unit="embedder@0.service")], EMBEDDER)
    assert looks["embedder"].unresolved == 1
    assert looks["embedder"].unknown_reason is Reason.DAEMON_SILENT


def test_expected_goes_before_welcome():
    what = Expectations(expected=(expected(command="*serve*"),), welcome=(welcome(process="python3"),))
    processes = {1: Process(name="python3", identity=None, arguments=("python3", "serve.py"))}
    found, looks = judged([tenant(1, "foreign")], what, processes)
    assert (found[0].expectations, found[0].welcome) == (("embedder",), None)
    assert looks["monitoring"].matched == 0


def test_only_the_foreign_are_welcome_and_ours_and_servers_match_nothing():
    what = Expectations(expected=(expected(process="*"),), welcome=(welcome(process="*"),))
    found, _ = judged([tenant(1, "server"), tenant(2, "ours")], what)
    assert all(not t.expectations and t.welcome is None for t in found)
    found, _ = judged([tenant(3, "managed"), tenant(4, "foreign")], Expectations(welcome=(welcome(process="*"),)))
    assert [t.welcome for t in found] == [None, "monitoring"]


@pytest.mark.parametrize("name", ["/usr/lib/xorg/Xorg", "/usr/bin/gnome-shell", "/usr/bin/kwin_wayland", "sway"])
def test_a_desktop_is_welcome_by_default(name):
    found, looks = judged([tenant(1, "foreign", name=name)], Expectations(welcome=(desktop(),)))
    assert found[0].welcome == "desktop"
    assert looks["desktop"].matched == 1


@pytest.mark.parametrize(
    ("wanted", "matches"),
    [
        ({"container": "web*"}, True),
        ({"container": "a3f1a3f1a3f1"}, True),
        ({"pod": "embedder-*", "namespace": "search"}, True),
        ({"pod": "embedder-*", "namespace": "other"}, False),
        ({"image": "*/embedder:*"}, True),
        ({"user": "svc"}, True),
        ({"slurm_job": "47*"}, True),
        ({"label": "app=embedder"}, True),
        ({"label": "app=*", "unit": "no.service"}, False),
        ({"command": "*--port 80*"}, True),
        ({"process": "python3"}, True),
        ({"process": "python3.12"}, True),
        ({"unit": "*"}, False),  # it has none
    ],
)
def test_each_field_of_a_pattern(wanted, matches):
    process = Process(
        name="/srv/embedder/bin/python3",
        identity=TenantIdentity(
            container_name="web-1", container_id="a3f1" * 16, pod_name="embedder-0", pod_namespace="search",
            image="registry/embedder:4", user="svc", slurm_job="4711", executable="/usr/bin/python3.12",
        ),
        arguments=("python3", "serve.py", "--port", "8000"),
        labels={"app": "embedder"},
    )  # fmt: skip
    assert Pattern(wanted=wanted).matches(process) is matches


LABEL = Expectations(expected=(expected(label="app=embedder", namespace="search"),))
HIDDEN = {"unknown": {"labels": Reason.PERMISSION}}


def hidden(pid, kind="foreign", **identity):
    """A process in a container whose labels may not be read."""
    one = tenant(pid, kind, **HIDDEN, **identity)
    return one, Process(name=one.process_name, identity=one.identity, labels_known=False)


def test_without_its_labels_a_process_may_match_and_the_counts_are_not_known():
    one, process = hidden(1, pod_namespace="search")
    (found,), looks = judged([one], LABEL, {1: process})
    assert (found.expectations, found.undecided) == ((), ("embedder",))
    assert looks["embedder"].unknown_reason is Reason.PERMISSION


def test_what_another_field_decides_needs_no_label():
    one, process = hidden(1, pod_namespace="other")
    (found,), looks = judged([one], LABEL, {1: process})
    assert found.undecided == ()
    assert looks["embedder"].unknown_reason is None


def test_a_label_that_is_known_decides_though_others_are_not():
    one, process = hidden(1, pod_namespace="search")
    process = dataclasses.replace(process, labels={"app": "embedder"})
    (found,), looks = judged([one], LABEL, {1: process})
    assert (found.expectations, found.undecided) == (("embedder",), ())
    assert looks["embedder"].escaped == 1


def test_a_welcome_by_label_is_undecided_as_well_and_one_that_decides_before_it_is_welcome():
    by_label, by_name = welcome("labelled", label="app=x"), welcome("named", process="python3")
    one, process = hidden(1)
    (found,), looks = judged([one], Expectations(welcome=(by_name, by_label)), {1: process})
    assert (found.welcome, found.undecided) == ("named", ())
    (found,), looks = judged([one], Expectations(welcome=(by_label, by_name)), {1: process})
    assert (found.welcome, found.undecided) == ("named", ("labelled",))
    assert looks["labelled"].unknown_reason is Reason.PERMISSION


def test_a_pattern_is_held_against_the_whole_unmasked_command_line():
    process = Process(
        name="python3", identity=TenantIdentity(command_line="serve --key ***"), arguments=("serve", "--key", "x" * 900)
    )
    assert Pattern(wanted={"command": "*xxx"}).matches(process)


@pytest.mark.parametrize(
    "what",
    [
        Expectations(expected=(expected(unit="a"), expected(unit="b"))),
        Expectations(expected=(expected("one", unit="a"), expected("two", unit="a"))),
        Expectations(expected=(expected("one", unit="a"), expected("two", 3, unit="a"))),
        Expectations(expected=(expected("one", unit="a.service"),), welcome=(welcome("two", unit="a*"),)),
        Expectations(expected=(expected("one", unit="a", user="x"),), welcome=(welcome("two", user="x"),)),
        Expectations(expected=(expected("one", process="Xorg"),), welcome=(desktop(),)),
        Expectations(expected=(expected("one", unit="a"),), welcome=(welcome("one", unit="b"),)),
        Expectations(welcome=(welcome("one", unit="a"), welcome("one", unit="b"))),
    ],
)
def test_what_cannot_both_be_meant_is_named(what):
    found = list(contradictions(what))
    assert found
    named = {each.name for each in (*what.expected, *what.welcome)}
    assert all({one, other} <= named for one, other, _ in found)


def test_what_can_both_be_meant_is_not():
    what = Expectations(
        expected=(expected("one", unit="a*"), expected("two", unit="ab*"), expected("three", user="x")),
        welcome=(welcome("four", unit="a.service"), welcome("five", unit="b*", user="x"), desktop()),
    )
    assert list(contradictions(what)) == []


def test_the_default_list_names_programs_and_no_interpreters():
    assert not {"python*", "*", "python3"} & set(DESKTOP)

"""nvidia-smi's report has the recorded form."""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ET

import pytest

from mpswatch.rehearsal import Stack

OURS = "nvidia_smi_log/gpu/rehearsal_sm_count"


def parse(text):
    return ET.fromstring(text)  # noqa: S314 (written by our own program, or a recording)


def smi(stack, *arguments, timeout=5.0):
    return subprocess.run([stack.nvidia_smi, *arguments], check=False, capture_output=True, timeout=timeout)


def places(element, above=""):
    here = f"{above}/{element.tag}".lstrip("/")
    return {here}.union(*(places(child, here) for child in element))


def rows(stack):
    root = parse(smi(stack, "-q", "-x").stdout)
    return [
        [{field.tag: field.text for field in info} for info in gpu.findall("processes/process_info")]
        for gpu in root.findall("gpu")
    ]


def test_the_report_has_every_element_of_the_recorded_one_and_no_other(stack, recordings):
    stack.add_service("llm")
    recorded = parse((recordings / "nvidia-smi-q-x.two-managed-one-foreign.xml").read_text())
    ours = parse(smi(stack, "-q", "-x").stdout)
    assert places(ours) - places(recorded) == {OURS}
    assert places(recorded) <= places(ours)


def test_managed_foreign_and_server_are_typed_and_sized_as_recorded(stack, recordings):
    one, two, other = stack.add_service("a"), stack.add_service("b"), stack.add_foreign("c", 658)
    (found,) = rows(stack)
    typed = {int(row["pid"]): (row["type"], row["used_memory"]) for row in found}
    assert typed == {
        one: ("M+C", "636 MiB"),
        two: ("M+C", "636 MiB"),
        other: ("C", "658 MiB"),
        stack.server_pid: ("C", "66 MiB"),
    }
    recorded = parse((recordings / "nvidia-smi-q-x.two-managed-one-foreign.xml").read_text())
    kinds = [(info.findtext("type"), info.findtext("used_memory")) for info in recorded.iter("process_info")]
    assert sorted(kinds) == sorted(typed.values())
    ours = parse(smi(stack, "-q", "-x").stdout)
    used = "gpu/fb_memory_usage/used"
    assert ours.findtext(used) == recorded.findtext(used) == "2012 MiB"


def test_the_csv_lists_the_server_too_and_turns_commas_into_question_marks(stack):
    pid = stack.add_foreign("odd", 10, process_name="a,b\n<c>")
    fields = "--query-compute-apps=pid,process_name,used_memory,gpu_uuid"
    text = smi(stack, fields, "--format=csv,noheader,nounits").stdout.decode()
    assert text == f"{pid}, a?b\n<c>, 10, GPU-5e0ea55a-0000-4000-8000-000000000000\n"
    assert smi(stack, fields, "--format=csv").stdout.startswith(b"pid, process_name, used_gpu_memory [MiB], gpu_uuid\n")


def test_a_name_cannot_break_out_of_the_report(stack):
    stack.add_foreign("odd", 10, process_name="</process_name><pid>1</pid>&")
    assert rows(stack)[0][0]["process_name"] == "</process_name><pid>1</pid>&"


def test_a_client_from_outside_is_listed_while_it_is_attached(stack, attach, eventually):
    client = attach("50")
    assert client.reply()
    assert {row["pid"]: row["type"] for row in rows(stack)[0]}[str(client.pid)] == "M+C"
    client.leave()
    eventually(lambda: str(client.pid) not in {row["pid"] for row in rows(stack)[0]})


def test_memory_may_belong_to_a_process_that_does_not_exist(stack):
    stack.tell("ghost", pid=4194000, memory_mib=300)
    assert [row["pid"] for row in rows(stack)[0]] == ["4194000"]


def test_a_tenant_may_be_on_two_gpus(stack_directory):
    with Stack(stack_directory, gpus=2) as stack:
        both = stack.add_foreign("wide", {0: 100, 1: 200})
        stack.add_service("llm", devices=[1])
        first, second = rows(stack)
        held = [[row["used_memory"] for row in gpu if row["pid"] == str(both)] for gpu in (first, second)]
        assert held == [["100 MiB"], ["200 MiB"]]
        assert "M+C" in {row["type"] for row in second}
        assert "M+C" not in {row["type"] for row in first}


@pytest.mark.parametrize(
    ("how", "status", "words"),
    [
        ("fail", 9, b"couldn't communicate with the NVIDIA driver"),
        ("lost", 15, b"GPU is lost"),
        ("no_devices", 6, b"No devices were found"),
        ("empty", 0, b""),
        ("garbage", 0, b"\xff\xfe"),
        ("na", 0, b"<used_memory>N/A<"),
        ("permissions", 0, b"<used_memory>Insufficient Permissions<"),
        ("unified", 0, b"<total>N/A<"),
        ("mig", 0, b"<current_mig>Enabled<"),
    ],
)
def test_it_can_be_told_to_be_wrong_and_right_again(stack, how, status, words):
    stack.add_service("llm")
    stack.tell("smi", how=how)
    answer = smi(stack, "-q", "-x")
    assert answer.returncode == status
    assert words in answer.stdout
    stack.tell("smi")
    assert b"<used_memory>636 MiB<" in smi(stack, "-q", "-x").stdout


def test_half_a_report_is_no_report(stack):
    stack.tell("smi", how="half")
    with pytest.raises(ET.ParseError):
        parse(smi(stack, "-q", "-x").stdout)


def test_it_hangs_when_told_so(stack):
    stack.tell("smi", how="hang")
    with pytest.raises(subprocess.TimeoutExpired):
        smi(stack, "-q", "-x", timeout=0.3)
    assert stack.status()["nvidia_smi"]["questions"] == 1

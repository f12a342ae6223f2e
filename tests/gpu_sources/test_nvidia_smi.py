"""nvidia-smi's report: the recorded one, and what other hosts and bad days make of it."""

from __future__ import annotations

import re
import sys
import time

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mpswatch.documents import GpuLook, MigDevice, Reason
from mpswatch.gpu import GpuError, NvidiaSmiSource, NvmlSource, open_sources, report
from mpswatch.proc import Processes

RECORDING = "nvidia-smi-q-x.two-managed-one-foreign.xml"
UUID = "GPU-d5186d3a-2601-5eeb-c6aa-b59b83ed0aa6"


@pytest.fixture
def recorded(recordings):
    return (recordings / RECORDING).read_bytes()


@pytest.fixture
def smi(tmp_path, tree):
    """A source whose program prints `data` and ends with `status`; strict about its arguments."""

    def make(data=b"", *, status=0, error=b"", simulated=False, deadline=5.0, proc=None, sleep=0):
        (tmp_path / "out").write_bytes(data)
        (tmp_path / "err").write_bytes(error)
        program = tmp_path / "nvidia-smi"
        program.write_text(
            f'#!/bin/sh\n[ "$*" = "-q -x" ] || exit 99\ncat {tmp_path}/err >&2\ncat {tmp_path}/out\nsleep {sleep}\n'
            f"exit {status}\n"
        )
        program.chmod(0o755)
        processes = Processes(proc or tree.root)
        return NvidiaSmiSource(str(program), deadline=deadline, simulated=simulated, processes=processes)

    return make


def changed(data, *pairs):
    for old, new in pairs:
        assert old in data, old
        data = data.replace(old, new)
    return data


def process(pid, kind="C", *, name="x", memory="10 MiB", gi="N/A", ci="N/A"):
    return (
        f"<process_info><gpu_instance_id>{gi}</gpu_instance_id><compute_instance_id>{ci}</compute_instance_id>"
        f"<pid>{pid}</pid><type>{kind}</type><process_name>{name}</process_name><used_memory>{memory}</used_memory>"
        "</process_info>"
    ).encode()


def with_processes(data, *rows):
    return re.sub(
        rb"<processes>.*?</processes>", b"<processes>" + b"".join(rows) + b"</processes>", data, flags=re.DOTALL
    )


def test_the_recorded_report_reads_as_what_it_says(smi, recorded):
    (look,) = smi(recorded).look()
    gpu = look.gpu
    assert (gpu.uuid, gpu.index, gpu.name, gpu.driver_version) == (UUID, 0, "NVIDIA H200", "580.159.04")
    assert gpu.memory_total_bytes == 143771 << 20
    assert (gpu.mig_enabled, gpu.compute_mode) == (False, "default")
    assert gpu.unknown == {"sm_count": Reason.NOT_SUPPORTED, "compute_capability": Reason.NOT_SUPPORTED}
    assert look.processes.state == "measured"
    assert [(p.pid, p.mps_client, p.used_memory_bytes) for p in look.processes.value] == [
        (577, True, 636 << 20),
        (578, True, 636 << 20),
        (581, False, 658 << 20),
        (633, False, 66 << 20),
    ]
    assert look.processes.value[3].name == "nvidia-cuda-mps-server"
    conditions = look.conditions
    assert (conditions.sm_clock_mhz, conditions.memory_clock_mhz) == (1980, 3201)
    assert (conditions.power_watts, conditions.temperature_celsius) == (132.98, 39)
    assert (conditions.utilization_ratio, conditions.throttle_reasons) == (0.02, ())
    assert (conditions.memory_used_bytes, conditions.memory_free_bytes) == (2012 << 20, 141145 << 20)
    assert conditions.unknown == {}


def test_conditions_of_one_gpu(smi, recorded):
    assert smi(recorded).conditions(UUID).sm_clock_mhz == 1980
    with pytest.raises(GpuError) as caught:
        smi(recorded).conditions("GPU-other")
    assert caught.value.reason is Reason.NO_GPU


def test_a_rehearsals_report_is_simulated_and_may_tell_its_multiprocessors(smi, recorded, tmp_path, make_tree):
    inside = make_tree(tmp_path / "inside", namespace=4026532991).root
    data = changed(recorded, (b"</product_name>", b"</product_name><rehearsal_sm_count>132</rehearsal_sm_count>"))
    (look,) = smi(data, simulated=True).look()
    assert (look.processes.state, look.gpu.sm_count) == ("simulated", 132)
    (look,) = smi(data).look()
    assert (look.processes.state, look.gpu.sm_count) == ("measured", None)
    (look,) = smi(with_processes(data), simulated=True, proc=inside).look()
    assert look.processes.value == (), "its program sees what we see"


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        (b"N/A", Reason.NOT_SUPPORTED),
        (b"[N/A]", Reason.NOT_SUPPORTED),
        (b"[Not Supported]", Reason.NOT_SUPPORTED),
        (b"[Insufficient Permissions]", Reason.INSUFFICIENT_PERMISSIONS),
        (b"Insufficient Permissions", Reason.INSUFFICIENT_PERMISSIONS),
        (b"[Unknown Error]", Reason.NVIDIA_SMI_ERROR),
        (b"[GPU is lost]", Reason.GPU_LOST),
        (b"[GPU requires reset]", Reason.GPU_LOST),
        (b"ERR!", Reason.NVIDIA_SMI_ERROR),
        (b"", Reason.NOT_SUPPORTED),
        (b"plenty", Reason.NVIDIA_SMI_NONSENSE),
        (b"-5 MiB", Reason.NVIDIA_SMI_NONSENSE),
        (b"1e3 MiB", Reason.NVIDIA_SMI_NONSENSE),
        (b"636", Reason.NVIDIA_SMI_NONSENSE),
        (b"636 KiB", Reason.NVIDIA_SMI_NONSENSE),
        (b"0.5 MiB", Reason.NVIDIA_SMI_NONSENSE),
        (b"999999999 MiB", Reason.NVIDIA_SMI_NONSENSE),
    ],
)
def test_a_words_reason_stands_where_its_number_would(smi, recorded, word, reason):
    (look,) = smi(changed(recorded, (b"<used_memory>658 MiB", b"<used_memory>" + word))).look()
    foreign = look.processes.value[2]
    assert (foreign.pid, foreign.used_memory_bytes, foreign.memory_unknown_reason) == (581, None, reason)
    assert look.processes.value[0].used_memory_bytes == 636 << 20


def test_on_unified_memory_the_device_has_none_and_its_processes_do(smi, recorded):
    data = recorded
    for field in (b"total", b"used", b"free", b"reserved"):
        data = re.sub(rb"(<fb_memory_usage>.*?<%s>)[^<]*" % field, rb"\1N/A", data, count=1, flags=re.DOTALL)
    (look,) = smi(data).look()
    assert look.gpu.memory_total_bytes is None
    assert look.gpu.unknown["memory_total_bytes"] is Reason.NOT_SUPPORTED
    assert look.conditions.unknown == dict.fromkeys(("memory_used_bytes", "memory_free_bytes"), Reason.NOT_SUPPORTED)
    assert look.processes.value[2].used_memory_bytes == 658 << 20


def test_mig_is_named(smi, recorded):
    data = changed(
        recorded,
        (b"<current_mig>Disabled", b"<current_mig>Enabled"),
        (b"<gpu_util>2 %", b"<gpu_util>N/A"),
    )
    rows = (process(577, memory="100 MiB", gi=1, ci=0), process(577, memory="200 MiB", gi=2, ci=0))
    (look,) = smi(with_processes(data, *rows)).look()
    assert look.gpu.mig_enabled is True
    assert look.conditions.unknown == {"utilization_ratio": Reason.MIG}
    assert [(p.pid, p.used_memory_bytes) for p in look.processes.value] == [(577, 300 << 20)]


MIG_DEVICE = b"""<mig_device>
    <index>%d</index> <gpu_instance_id>%d</gpu_instance_id> <compute_instance_id>0</compute_instance_id> %s
    <device_attributes><shared>
        <multiprocessor_count>60</multiprocessor_count> <copy_engine_count>3</copy_engine_count>
    </shared></device_attributes>
    <fb_memory_usage> <total>40448 MiB</total> <used>298 MiB</used> </fb_memory_usage>
</mig_device>"""
"""As public reports of driver 575 have it. A uuid stands in some versions' only."""


def partitioned(recorded, *devices):
    return changed(
        recorded,
        (b"<current_mig>Disabled", b"<current_mig>Enabled"),
        (b"None\n\t\t</mig_devices>", b"".join(devices) + b"</mig_devices>"),
    )


def test_the_instances_of_a_partitioned_gpu_are_named_as_far_as_the_report_does(smi, recorded):
    data = partitioned(recorded, MIG_DEVICE % (0, 1, b""), MIG_DEVICE % (1, 5, b"<uuid>MIG-7ac13c22</uuid>"))
    (look,) = smi(data).look()
    nameless, named = look.gpu.mig_devices
    assert nameless == MigDevice(
        index=0, uuid=None, profile=None, gpu_instance_id=1, compute_instance_id=0, sm_count=60,
        memory_total_bytes=40448 << 20, unknown={"uuid": Reason.NOT_SUPPORTED, "profile": Reason.NOT_SUPPORTED},
    )  # fmt: skip
    assert (named.uuid, named.gpu_instance_id) == ("MIG-7ac13c22", 5)


def test_no_instance_is_none_and_where_mig_is_off_there_is_none(smi, recorded):
    (look,) = smi(partitioned(recorded)).look()
    assert (look.gpu.mig_enabled, look.gpu.mig_devices) == (True, ())
    (look,) = smi(recorded).look()
    assert (look.gpu.mig_enabled, look.gpu.mig_devices) == (False, ())


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        (b"<mig_device><index>zero</index></mig_device>", Reason.NVIDIA_SMI_NONSENSE),
        (b"<mig_device></mig_device>", Reason.NOT_SUPPORTED),
        (b"<mig_device><index>[Insufficient Permissions]</index></mig_device>", Reason.INSUFFICIENT_PERMISSIONS),
    ],
)
def test_a_list_of_instances_that_cannot_be_read_is_unknown(devices, reason, smi, recorded):
    (look,) = smi(partitioned(recorded, devices)).look()
    assert look.gpu.mig_devices is None
    assert look.gpu.unknown["mig_devices"] is reason


def test_a_process_that_only_draws_is_left_out_and_one_that_does_both_is_not(smi, recorded):
    rows = (process(1, "G"), process(2, "C+G"), process(3, "M+C"), process(4, "M+C+G"))
    (look,) = smi(with_processes(recorded, *rows)).look()
    assert [(p.pid, p.mps_client) for p in look.processes.value] == [(2, False), (3, True), (4, True)]


@pytest.mark.parametrize("row", [process("0"), process("-1"), process("4194305"), process("x"), process("1.5"),
                                 process("N/A"), process(5, "Z"), process(5, ""), b"<process_info/>"])  # fmt: skip
def test_a_row_that_cannot_be_read_makes_the_whole_list_unknown(smi, recorded, row):
    (look,) = smi(with_processes(recorded, process(7), row)).look()
    assert look.processes.value is None
    assert Reason(look.processes.unknown_reason)
    assert look.gpu.uuid == UUID


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (b"N/A", "not_supported"),
        (b"[Insufficient Permissions]", "insufficient_permissions"),
        (b"hello", "nvidia_smi_nonsense"),
    ],
)
def test_a_list_that_is_a_word_is_unknown(smi, recorded, words, reason):
    (look,) = smi(with_processes(recorded, words)).look()
    assert look.processes.unknown_reason == reason


def test_an_empty_list_is_empty_outside_and_unknown_inside_a_pid_namespace(smi, recorded, tmp_path, make_tree):
    (look,) = smi(with_processes(recorded)).look()
    assert look.processes.value == ()
    inside = make_tree(tmp_path / "inside", namespace=4026532991).root
    (look,) = smi(with_processes(recorded), proc=inside).look()
    assert look.processes.unknown_reason == "pid_namespace_blind"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"\xff\xfe-x", "\ufffd\ufffd-x"),
        (b"a\x1b[2Jb", "a\ufffd[2Jb"),
        (b"a\nb", r"a\x0ab"),
        (b"/home/jane/x", "~/x"),
        (b"&lt;script&gt;&amp;", "<script>&"),
        (b"-", "-"),
        (b"[N/A]", "[N/A]"),
        (b"y" * 300, "y" * 199 + "…"),
    ],
)
def test_names_that_processes_choose_come_out_printable(smi, recorded, name, shown):
    row = process(5, name="NAME").replace(b"NAME", name)
    (look,) = smi(with_processes(recorded, row)).look()
    assert look.processes.value[0].name == shown


def test_each_of_two_gpus_has_its_own_processes_and_what_is_on_both_is_on_each(smi, recordings):
    report = (recordings.parent / "h200-580/two-gpus/nvidia-smi-q-x.xml").read_bytes()
    first, second = (
        {process.pid: process.mps_client for process in look.processes.value} for look in smi(report).look()
    )
    assert first == {593: False, 733: True, 806: True}
    assert second == {593: False, 733: True, 803: False, 810: True}


def test_two_gpus_are_two(smi, recorded):
    second = re.search(rb"<gpu id.*</gpu>", recorded, re.DOTALL).group(0).replace(b"GPU-d5186d3a", b"GPU-11111111")
    looks = smi(changed(recorded, (b"</nvidia_smi_log>", second + b"</nvidia_smi_log>"))).look()
    assert [(look.gpu.index, look.gpu.uuid[:12]) for look in looks] == [(0, "GPU-d5186d3a"), (1, "GPU-11111111")]


@pytest.mark.parametrize(
    ("said", "status", "reason"),
    [
        (b"Failed to initialize NVML: Driver/library version mismatch\n", 18, Reason.NVML_MISMATCH),
        (b"No devices were found\n", 6, Reason.NO_GPU),
        (b"No devices were found\n", 0, Reason.NO_GPU),
        (b"Unable to determine the device handle for GPU0000:00:06.0: GPU is lost.  Reboot\n", 15, Reason.GPU_LOST),
        (b"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", 9, Reason.NVML_MISSING),
        (b"NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n", 12, Reason.NVML_MISSING),
        (b"Failed to initialize NVML: Insufficient Permissions\n", 4, Reason.INSUFFICIENT_PERMISSIONS),
        (b"what?\n", 255, Reason.NVIDIA_SMI_ERROR),
        (b"", 1, Reason.NVIDIA_SMI_ERROR),
        (b"", 0, Reason.NVIDIA_SMI_NONSENSE),
        (b"prose, with 12 numbers\n", 0, Reason.NVIDIA_SMI_NONSENSE),
        (b"<html/>", 0, Reason.NVIDIA_SMI_NONSENSE),
        (b"<nvidia_smi_log></nvidia_smi_log>", 0, Reason.NO_GPU),
        (b"\xff\xfe\x00", 0, Reason.NVIDIA_SMI_NONSENSE),
    ],
)
def test_a_program_that_gives_no_report_says_why(smi, said, status, reason):
    with pytest.raises(GpuError) as caught:
        smi(said, status=status).look()
    assert caught.value.reason is reason
    with pytest.raises(GpuError):
        smi(said, status=status).conditions(UUID)


def test_half_a_report_is_nonsense(smi, recorded):
    with pytest.raises(GpuError) as caught:
        smi(recorded[: len(recorded) // 2]).look()
    assert caught.value.reason is Reason.NVIDIA_SMI_NONSENSE


def test_a_hung_program_is_ended_by_the_deadline(smi, recorded):
    began = time.monotonic()
    with pytest.raises(GpuError) as caught:
        smi(recorded, sleep=60, deadline=0.3).look()
    assert caught.value.reason is Reason.SOURCE_STUCK
    assert time.monotonic() - began < 3


def test_a_missing_program_is_missing(tmp_path):
    source = NvidiaSmiSource(str(tmp_path / "nvidia-smi"), deadline=1)
    with pytest.raises(GpuError) as caught:
        source.look()
    assert caught.value.reason is Reason.NVIDIA_SMI_MISSING


BOMBS = {
    "laughs": b'<!DOCTYPE a [<!ENTITY b "ha"><!ENTITY c "&b;&b;&b;">]><nvidia_smi_log><gpu>&c;</gpu></nvidia_smi_log>',
    "file": b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><nvidia_smi_log><gpu>&b;</gpu></nvidia_smi_log>',
    "parameter": b"<!DOCTYPE a [<!ENTITY % b \"<!ENTITY c 'd'>\">%b;]><nvidia_smi_log/>",
}


@pytest.mark.parametrize("data", BOMBS.values(), ids=BOMBS)
def test_a_report_with_entities_is_refused(data):
    with pytest.raises(GpuError) as caught:
        report.parse(data)
    assert caught.value.reason is Reason.NVIDIA_SMI_NONSENSE


def test_the_real_reports_document_type_is_no_entity_and_nothing_is_fetched(recorded):
    assert b"<!DOCTYPE nvidia_smi_log SYSTEM" in recorded
    assert report.parse(recorded).tag == "nvidia_smi_log"


def test_a_very_deep_report_is_read_or_refused():
    data = b"<nvidia_smi_log>" + b"<a>" * 20000 + b"</a>" * 20000 + b"</nvidia_smi_log>"
    try:
        report.parse(data)
    except GpuError as error:
        assert error.reason is Reason.NVIDIA_SMI_NONSENSE  # noqa: PT017 - one of the two right outcomes


def numbers(value):
    if isinstance(value, dict):
        for key, part in value.items():
            if key not in {"index", "measured_at"}:
                yield from numbers(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from numbers(part)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_report_with_bytes_changed_is_a_document_or_a_named_error(recorded, tree, data):
    broken = bytearray(recorded)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(broken) - 1))
        piece = data.draw(st.one_of(st.binary(min_size=1, max_size=3), st.sampled_from([b"<", b">", b"N/A", b"9"])))
        broken[at : at + data.draw(st.integers(0, 3))] = piece
    source = _Canned(bytes(broken), tree.root)
    try:
        looks = source.look()
    except GpuError as error:
        assert isinstance(error.reason, Reason)  # noqa: PT017 - an error is one of the two right outcomes
        return
    said = {float(number) for number in re.findall(rb"[0-9]+(?:\.[0-9]+)?", bytes(broken))}
    allowed = said | {number * (1 << 20) for number in said} | {number / 100 for number in said}
    for number in numbers(msgspec.to_builtins(looks)):
        assert float(number) in allowed
    assert msgspec.convert(msgspec.to_builtins(looks), tuple[GpuLook, ...]) == looks


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=300), st.binary(max_size=60).map(lambda part: b"<nvidia_smi_log><gpu>" + part)))
def test_any_bytes_are_no_report_and_a_named_error(tree, said):
    try:
        looks = _Canned(said, tree.root).look()
    except GpuError as error:
        assert isinstance(error.reason, Reason)  # noqa: PT017 - an error is one of the two right outcomes
    else:
        assert list(numbers(msgspec.to_builtins(looks))) == []


class _Canned(NvidiaSmiSource):
    """Without the program: the property test is about what is made of its bytes."""

    def __init__(self, data, proc):
        super().__init__(sys.executable, deadline=1, processes=Processes(proc))
        self._data = data

    def _report(self):
        return report.parse(self._data)


def test_the_setting_orders_the_sources_and_a_rehearsal_never_asks_nvml():
    def kinds(setting, *, simulated=False):
        return [type(s) for s in open_sources(setting, nvidia_smi="x", deadline=1, simulated=simulated)]

    assert kinds("auto") == [NvmlSource, NvidiaSmiSource]
    assert kinds("nvml") == [NvmlSource]
    assert kinds("nvidia-smi") == [NvidiaSmiSource]
    for setting in ("auto", "nvml", "nvidia-smi"):
        assert kinds(setting, simulated=True) == [NvidiaSmiSource]
    assert [source.name for source in open_sources("auto", nvidia_smi="x", deadline=1, simulated=False)] == [
        "nvml",
        "nvidia-smi",
    ]

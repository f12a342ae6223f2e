"""NVML for real, through pynvml, against a library that the test builds (stub_nvml.c)."""

from __future__ import annotations

import pytest

from mpswatch.documents import MigDevice, Reason
from mpswatch.gpu.source import CONDITIONS

pytestmark = pytest.mark.part("gcc")

UUID = "GPU-00000000-2601-5eeb-c6aa-b59b83ed0aa6"
NONE = 4294967295
RECORDED = (  # tests/recordings: two-managed-one-foreign.txt
    f"process 0 633 69206016 0 {NONE} {NONE} nvidia-cuda-mps-server",
    f"process 0 577 666894336 1 {NONE} {NONE} /srv/app/.venv/bin/python3",
    f"process 0 578 666894336 1 {NONE} {NONE} /srv/app/.venv/bin/python3",
    f"process 0 581 689963008 0 {NONE} {NONE} /srv/app/.venv/bin/python3",
)


def test_everything_known(nvml):
    (look,) = nvml.new(*RECORDED).look()
    gpu = look.gpu
    assert (gpu.uuid, gpu.index, gpu.name, gpu.driver_version) == (UUID, 0, "NVIDIA H200", "580.159.04")
    assert (gpu.compute_capability, gpu.sm_count, gpu.mig_enabled, gpu.compute_mode) == ("9.0", 132, False, "default")
    assert gpu.memory_total_bytes == 150754820096
    assert gpu.unknown == {}
    assert look.processes.state == "measured"
    assert [(p.pid, p.used_memory_bytes, p.mps_client, p.name) for p in look.processes.value] == [
        (577, 666894336, True, "/srv/app/.venv/bin/python3"),
        (578, 666894336, True, "/srv/app/.venv/bin/python3"),
        (581, 689963008, False, "/srv/app/.venv/bin/python3"),
        (633, 69206016, False, "nvidia-cuda-mps-server"),
    ]
    conditions = look.conditions
    assert (conditions.sm_clock_mhz, conditions.memory_clock_mhz) == (1980, 3201)
    assert (conditions.power_watts, conditions.temperature_celsius, conditions.utilization_ratio) == (133.12, 39, 0.02)
    assert conditions.throttle_reasons == ("sw_power_cap",)
    assert conditions.memory_used_bytes == 2107637760, "without the driver's own share, as nvidia-smi says"
    assert conditions.memory_free_bytes == 148001259520
    assert conditions.unknown == {}
    assert nvml.conditions(UUID).sm_clock_mhz == 1980


def test_an_idle_gpu_has_no_processes_and_that_is_known(nvml):
    (look,) = nvml.new().look()
    assert look.processes.value == ()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (9, "nvml_missing"), (12, "nvml_missing"), (18, "nvml_mismatch"), (13, "nvml_mismatch"), (3, "nvml_mismatch"),
        (15, "gpu_lost"), (4, "insufficient_permissions"), (17, "insufficient_permissions"),
        (999, "nvml_error"), (10, "nvml_error"), (20, "nvml_error"), (77, "nvml_error"),
    ],
)  # fmt: skip
def test_a_library_that_does_not_open_says_why(nvml, code, reason):
    answer = nvml.new(f"error nvmlInit {code}").answer()
    assert answer["error"] == reason
    assert answer["detail"]


def test_a_library_that_opens_later_is_used_from_then_on(nvml):
    assert nvml.new("error nvmlInit 9").answer()["error"] == "nvml_missing"
    nvml.play(*RECORDED)
    assert len(nvml.look()[0].processes.value) == 4


def test_without_the_library_it_is_missing_and_there_is_a_remedy(make_asker):
    answer = make_asker("none").new().answer()
    assert answer["error"] == "nvml_missing"
    assert "driver" in answer["remedy"]
    assert make_asker("none").conditions(UUID)["error"] == "nvml_missing"


def test_another_library_of_that_name_is_a_mismatch(make_asker):
    assert make_asker("other").new().answer()["error"] == "nvml_mismatch"


def test_an_older_library_is_asked_by_its_older_names(make_asker):
    (look,) = make_asker("old").new(*RECORDED).look()
    assert [process.mps_client for process in look.processes.value] == [True, True, False, False]
    assert look.conditions.throttle_reasons == ("sw_power_cap",)
    assert look.conditions.memory_used_bytes == 2753560576
    assert look.gpu.unknown == {}


def test_no_gpu_at_all_is_a_reason(nvml):
    assert nvml.new("gpus 0").answer()["error"] == "no_gpu"
    assert nvml.new().conditions("GPU-other")["error"] == "no_gpu"


@pytest.mark.parametrize(
    ("function", "field"),
    [
        ("nvmlDeviceGetMigMode", "mig_enabled"),
        ("nvmlDeviceGetComputeMode", "compute_mode"),
        ("nvmlDeviceGetNumGpuCores", "sm_count"),
        ("nvmlSystemGetDriverVersion", "driver_version"),
    ],
)
@pytest.mark.parametrize(
    ("code", "reason"),
    [(3, Reason.NOT_SUPPORTED), (4, Reason.INSUFFICIENT_PERMISSIONS), (999, Reason.NVML_ERROR), (15, Reason.GPU_LOST)],
)
def test_a_fact_that_fails_alone_is_unknown_and_the_others_stay(nvml, function, field, code, reason):
    (look,) = nvml.new(*RECORDED, f"error {function} {code}").look()
    fields = (field, "mig_devices") if field == "mig_enabled" else (field,)  # without the mode no instances
    assert all(getattr(look.gpu, name) is None for name in fields)
    assert look.gpu.unknown == dict.fromkeys(fields, reason)
    assert len(look.processes.value) == 4


@pytest.mark.parametrize(
    ("function", "fields"),
    [
        ("nvmlDeviceGetClockInfo", {"sm_clock_mhz", "memory_clock_mhz"}),
        ("nvmlDeviceGetPowerUsage", {"power_watts"}),
        ("nvmlDeviceGetTemperature", {"temperature_celsius"}),
        ("nvmlDeviceGetCurrentClocksEventReasons", {"throttle_reasons"}),
        ("nvmlDeviceGetUtilizationRates", {"utilization_ratio"}),
        ("nvmlDeviceGetMemoryInfo", {"memory_used_bytes", "memory_free_bytes"}),
    ],
)
def test_a_condition_that_fails_alone_is_unknown_and_the_others_stay(nvml, function, fields):
    (look,) = nvml.new(*RECORDED, f"error {function} 4").look()
    assert look.conditions.unknown == dict.fromkeys(fields, Reason.INSUFFICIENT_PERMISSIONS)
    for field in CONDITIONS:
        assert (getattr(look.conditions, field) is None) == (field in fields)


def test_on_unified_memory_the_device_has_none_and_its_processes_do(nvml):
    (look,) = nvml.new(*RECORDED, "error nvmlDeviceGetMemoryInfo 3").look()
    assert look.gpu.memory_total_bytes is None
    assert look.gpu.unknown == {"memory_total_bytes": Reason.NOT_SUPPORTED}
    assert look.conditions.unknown["memory_used_bytes"] is Reason.NOT_SUPPORTED
    assert look.processes.value[0].used_memory_bytes == 666894336


def test_a_process_whose_memory_is_not_available_has_none(nvml):
    (look,) = nvml.new(f"process 0 577 18446744073709551615 1 {NONE} {NONE} x").look()
    (process,) = look.processes.value
    assert (process.used_memory_bytes, process.memory_unknown_reason) == (None, Reason.NOT_SUPPORTED)


def test_more_memory_than_there_is_is_no_number(nvml):
    (look,) = nvml.new(f"process 0 577 1000000000000000 1 {NONE} {NONE} x").look()
    (process,) = look.processes.value
    assert (process.used_memory_bytes, process.memory_unknown_reason) == (None, Reason.NVML_ERROR)


@pytest.mark.parametrize("value", [2**32 - 1, 2**64 - 1])
def test_no_sentinel_escapes(nvml, value):
    keys = ["power", "temperature", "sm_clock", "memory_clock", "utilization", "cores", "total", "used", "free", "mig"]
    (look,) = nvml.new(*RECORDED, *(f"set {key} {value}" for key in keys)).look()
    numbers = ("power_watts", "temperature_celsius", "sm_clock_mhz", "memory_clock_mhz", "utilization_ratio")
    for field in numbers:
        assert getattr(look.conditions, field) is None
        assert look.conditions.unknown[field] is Reason.NOT_SUPPORTED
    assert look.gpu.sm_count is None
    assert look.gpu.mig_enabled is None


def test_a_utilization_over_100_is_no_number(nvml):
    (look,) = nvml.new("set utilization 250").look()
    assert look.conditions.utilization_ratio is None
    assert look.conditions.unknown == {"utilization_ratio": Reason.NVML_ERROR}


def test_a_compute_capability_that_nobody_knows_gives_no_multiprocessors(nvml):
    (look,) = nvml.new("set major 99").look()
    assert (look.gpu.sm_count, look.gpu.compute_capability) == (None, "99.0")
    assert look.gpu.unknown == {"sm_count": Reason.NOT_SUPPORTED}


def test_an_unknown_compute_mode_is_unknown(nvml):
    (look,) = nvml.new("set compute_mode 17").look()
    assert look.gpu.compute_mode is None
    assert look.gpu.unknown == {"compute_mode": Reason.NVML_ERROR}
    (look,) = nvml.new("set compute_mode 3").look()
    assert look.gpu.compute_mode == "exclusive_process"


def test_clock_event_reasons_are_named_and_unknown_bits_too(nvml):
    assert nvml.new("set reasons 0").look()[0].conditions.throttle_reasons == ()
    bits = 0x01 | 0x08 | 0x40 | 1 << 40
    said = nvml.new(f"set reasons {bits}").look()[0].conditions.throttle_reasons
    assert said == ("gpu_idle", "hw_slowdown", "hw_thermal_slowdown", "bit_40")


@pytest.mark.parametrize("code", [3, 4, 999])
def test_without_the_list_of_processes_they_are_unknown_and_the_gpu_stays(nvml, code):
    (look,) = nvml.new(*RECORDED, f"error nvmlDeviceGetComputeRunningProcesses {code}").look()
    assert look.processes.value is None
    assert look.processes.unknown_reason in {"not_supported", "insufficient_permissions", "nvml_error"}
    assert look.gpu.sm_count == 132


def test_without_the_list_of_mps_clients_nobody_is_called_one_or_not(nvml):
    (look,) = nvml.new(*RECORDED, "error nvmlDeviceGetMPSComputeRunningProcesses 3").look()
    assert {process.mps_client for process in look.processes.value} == {None}
    assert look.processes.evidence["mps_list_unknown"] == "not_supported"


@pytest.mark.parametrize("pid", [0, 4194305, 4294967295])
def test_a_pid_that_can_be_none_makes_the_whole_list_unknown(nvml, pid):
    (look,) = nvml.new(*RECORDED, f"process 0 {pid} 1 0 {NONE} {NONE} x").look()
    assert look.processes.value is None
    assert look.processes.unknown_reason == "nvml_error"


def test_a_process_in_two_mig_instances_is_one_with_the_sum(nvml):
    rows = ("process 0 577 1000 0 1 0 a", "process 0 577 2000 0 2 0 a", "process 0 578 18446744073709551615 0 1 0 b",
            "process 0 578 5 0 2 0 b")  # fmt: skip
    (look,) = nvml.new("set mig 1", "error nvmlDeviceGetUtilizationRates 3", *rows).look()
    assert look.gpu.mig_enabled is True
    first, second = look.processes.value
    assert (first.pid, first.used_memory_bytes) == (577, 3000)
    assert (second.used_memory_bytes, second.memory_unknown_reason) == (None, Reason.NOT_SUPPORTED)
    assert look.conditions.unknown == {"utilization_ratio": Reason.MIG}


PARTITIONED = ("set mig 1", "instance 0 0 1 0 60 73728 3g.71gb", "instance 0 3 9 0 16 18432 1g.18gb")


def test_the_instances_of_a_partitioned_gpu_are_named(nvml):
    (look,) = nvml.new(*PARTITIONED).look()
    larger, smaller = look.gpu.mig_devices
    assert larger == MigDevice(
        index=0, uuid="MIG-00000100-2601-5eeb-c6aa-b59b83ed0aa6", profile="3g.71gb", gpu_instance_id=1,
        compute_instance_id=0, sm_count=60, memory_total_bytes=72 << 30,
    )  # fmt: skip
    assert (smaller.index, smaller.profile, smaller.gpu_instance_id) == (3, "1g.18gb", 9)
    assert (look.gpu.name, look.gpu.sm_count) == ("NVIDIA H200", 132)


def test_a_partitioned_gpu_may_have_no_instance_yet(nvml):
    (look,) = nvml.new("set mig 1").look()
    assert look.gpu.mig_devices == ()
    assert look.gpu.unknown == {}


def test_where_mig_is_off_nobody_asks_for_instances(nvml):
    (look,) = nvml.new("hang nvmlDeviceGetMaxMigDeviceCount", "hang nvmlDeviceGetMigDeviceHandleByIndex").look()
    assert look.gpu.mig_devices == ()


@pytest.mark.parametrize("function", ["MaxMigDeviceCount", "MigDeviceHandleByIndex"])
def test_instances_that_may_not_be_listed_are_unknown_and_not_none_at_all(nvml, function):
    (look,) = nvml.new(*PARTITIONED, f"error nvmlDeviceGet{function} 4").look()
    assert look.gpu.mig_enabled is True
    assert look.gpu.mig_devices is None
    assert look.gpu.unknown == {"mig_devices": Reason.INSUFFICIENT_PERMISSIONS}


@pytest.mark.parametrize(
    ("function", "fields"),
    [
        ("UUID", {"uuid"}),
        ("Name", {"profile"}),
        ("GpuInstanceId", {"gpu_instance_id"}),
        ("ComputeInstanceId", {"compute_instance_id"}),
        ("Attributes_v2", {"sm_count", "memory_total_bytes"}),
    ],
)
def test_a_fact_of_an_instance_that_fails_leaves_the_others(nvml, function, fields):
    (look,) = nvml.new(*PARTITIONED, f"error nvmlDeviceGet{function} 4 103").look()
    well, troubled = look.gpu.mig_devices
    assert well.unknown == {}
    assert troubled.unknown == dict.fromkeys(fields, Reason.INSUFFICIENT_PERMISSIONS)
    assert all((getattr(troubled, name) is None) == (name in fields) for name in MigDevice.__struct_fields__)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (r"\xff\xfeservice", r"\xff\xfeservice"),
        (r"a\x0ab\x1b[2J", r"a\x0ab\x1b[2J"),
        ("/home/jane/bin/x", "~/bin/x"),
        ("x" * 300, "x" * 199 + "…"),
        ("-", "-"),
        ("[N/A]", "[N/A]"),
        ("a,b", "a,b"),
        ("", None),
    ],
)
def test_names_that_processes_choose_come_out_printable(nvml, name, shown):
    (look,) = nvml.new(f"process 0 577 1000 0 {NONE} {NONE} {name}").look()
    assert look.processes.value[0].name == shown


def test_a_name_that_is_not_found_is_none(nvml):
    (look,) = nvml.new(*RECORDED, "error nvmlSystemGetProcessName 6").look()
    assert {process.name for process in look.processes.value} == {None}


def test_many_processes_are_listed_whole(nvml):
    rows = [f"process 0 {1000 + n} 1048576 {n % 2} {NONE} {NONE} p{n}" for n in range(300)]
    (look,) = nvml.new(*rows).look()
    assert len(look.processes.value) == 300


def test_one_process_on_two_gpus_is_listed_on_both(nvml):
    looks = nvml.new("gpus 2", *RECORDED, f"process 1 581 1000 0 {NONE} {NONE} x").look()
    assert [look.gpu.index for look in looks] == [0, 1]
    assert [process.pid for process in looks[1].processes.value] == [581]


def test_a_gpu_that_is_lost_from_the_start_does_not_take_the_other_one_down(nvml):
    lost, well = nvml.new("gpus 2", "error nvmlDeviceGetHandleByIndex 15 0", f"process 1 7 1 0 {NONE} {NONE} x").look()
    assert (lost.gpu.uuid, lost.gpu.index) == ("", 0)
    assert lost.gpu.unknown["uuid"] is Reason.GPU_LOST
    assert lost.processes.unknown_reason == "gpu_lost"
    assert set(lost.conditions.unknown.values()) == {Reason.GPU_LOST}
    assert [process.pid for process in well.processes.value] == [7]


def test_a_gpu_that_falls_off_the_bus_keeps_its_name_and_loses_its_figures(nvml):
    nvml.new(*RECORDED).look()
    functions = ["ComputeRunningProcesses", "MPSComputeRunningProcesses", "ClockInfo", "PowerUsage", "Temperature",
                 "CurrentClocksEventReasons", "UtilizationRates", "MemoryInfo", "MigMode", "ComputeMode"]  # fmt: skip
    nvml.play(*RECORDED, *(f"error nvmlDeviceGet{function} 15" for function in functions))
    (look,) = nvml.look()
    assert (look.gpu.uuid, look.gpu.sm_count) == (UUID, 132)
    assert look.gpu.unknown == dict.fromkeys(("mig_enabled", "mig_devices", "compute_mode"), Reason.GPU_LOST)
    assert look.processes.unknown_reason == "gpu_lost"
    assert look.conditions.unknown == dict.fromkeys(CONDITIONS, Reason.GPU_LOST)


def test_after_trouble_the_library_is_opened_anew_but_not_at_every_look(nvml):
    nvml.new("error nvmlDeviceGetHandleByIndex 15", reopen_seconds=0.0)
    assert nvml.look()[0].gpu.uuid == ""
    nvml.play(*RECORDED)
    assert nvml.look()[0].gpu.uuid == UUID
    nvml.new("error nvmlDeviceGetHandleByIndex 15", reopen_seconds=1000.0)
    assert nvml.look()[0].gpu.uuid == ""
    nvml.play(*RECORDED)
    assert nvml.look()[0].gpu.uuid == "", "opening a library with a GPU missing can take seconds"


@pytest.mark.parametrize("namespace", [4026532991, None])
@pytest.mark.parametrize("rows", [(), RECORDED])
def test_from_inside_a_pid_namespace_the_list_is_unknown(nvml, tmp_path, make_tree, rows, namespace):
    """It is empty without an error; where it is not, its numbers would be other processes here."""
    (look,) = nvml.new(*rows, proc=make_tree(tmp_path / "inside", namespace=namespace).root).look()
    assert look.processes.value is None
    assert look.processes.unknown_reason == "pid_namespace_blind"
    assert look.gpu.sm_count == 132
    assert look.conditions.sm_clock_mhz == 1980

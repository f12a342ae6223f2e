from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from mpswatch.cli.show import print_poll
from mpswatch.cli.show_interference import print_interference
from mpswatch.documents import DaemonLook, MigDevice, from_json

RECORDED = Path(__file__).parents[1] / "recordings/h200-580/two-gpus/limits-check.txt"


def printed(snapshot):
    out = io.StringIO()
    print_poll(snapshot, Console(file=out, width=80, markup=False, emoji=False, highlight=False))
    return out.getvalue()


def recorded(what):
    lines = RECORDED.read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(what))
    return from_json(lines[at + 1].encode(), DaemonLook)


def test_what_clients_are_given_at_most_is_shown_with_who_said_so_and_when(facts):
    said = printed(facts.poll(daemons=(recorded("a default for uuid and ordinal that differ"),))).splitlines()
    source = "(nvidia-cuda-mps-control at 22:08:47 UTC)"
    assert f"x: each client of server 1643 gets at most 40 %, 2 GiB of GPU-e8d742f7 {source}" in said
    assert f"x: each client of servers to come gets at most 50 %, 900 MiB of GPU-e8d742f7 {source}" in said


def test_where_no_limit_is_set_none_is_spoken_of(facts):
    assert "at most" not in printed(facts.poll(daemons=(recorded("known server, nothing set"),)))


def test_a_partitioned_gpu_is_shown_with_its_instances_and_why_it_is_left_alone(facts):
    instance = MigDevice(
        index=0, uuid="MIG-41b3", profile="1g.18gb", gpu_instance_id=9, compute_instance_id=0, sm_count=16,
        memory_total_bytes=16 << 30,
    )  # fmt: skip
    look = facts.gpu_look(gpu=facts.gpu("GPU-1", mig_enabled=True, mig_devices=(instance,)))
    why = "GPU-1 is partitioned by MIG, where a cap means something else, and left alone"
    assert f"{why}: MIG-41b3 (1g.18gb, 16 SMs, 16.0 GiB)" in printed(facts.poll(gpus=facts.known((look,))))


def test_no_pid_and_no_amount_is_cut_whatever_tenants_are_called(facts):
    tenants = tuple(
        facts.tenant(4194300 + number, "foreign", 123456 << 20, process_name="/opt/" + "long/" * 30 + str(number))
        for number in range(3)
    )
    said = printed(facts.poll(tenants=facts.known(tenants)))
    assert "…" not in said
    for number in range(3):
        assert f"{4194300 + number} foreign" in said
    assert said.count("123456") == 3
    assert said.count(f"foreign {facts.GPU[:12]}") == 3


def test_no_number_of_an_interference_matrix_is_cut(facts):
    out = io.StringIO()
    print_interference(facts.interference(), Console(file=out, width=80, markup=False, emoji=False, highlight=False))
    assert "…" not in out.getvalue()
    assert all(len(line) <= 80 for line in out.getvalue().splitlines() if " to " in line and "%" in line)

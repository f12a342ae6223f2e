"""A cell from `cell` to `gone`, with the real launcher and the real child, computing on the CPU."""

from __future__ import annotations

import ast
import json
import os
import sys
import time
import zipfile
from pathlib import Path

import pytest

from mpswatch.process.bundle import client_zipapp


def gone(pid: int, seconds: float = 10) -> None:
    """Wait until the process has ended, reaped or not."""
    until = time.monotonic() + seconds
    stat = Path(f"/proc/{pid}/stat")
    while stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] not in "ZX":
        assert time.monotonic() < until, "it lives on"
        time.sleep(0.01)


def test_a_cell_goes_through_and_every_line_says_what_it_should(start, stack) -> None:
    launcher = start()
    ready = launcher.said_ready
    assert ready["pid"] == ready["session"] == launcher.pid
    assert (ready["lock"], ready["threads"], ready["backend"]) == ("held", 1, "numpy")
    said = launcher.through(order=3, cap="25")
    pid = said["forked"]["pid"]
    assert said["forked"] == {"order": 3, "cap": "25", "pid": pid}
    attached = said["attached"]
    assert (attached["pid"], attached["sm_count"], attached["device_name"]) == (pid, 32, "rehearsal")
    assert set(attached["timings"]) == {"fork", "context", "allocate"}
    assert attached["environment"]["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert attached["environment"]["CUDA_MPS_PIPE_DIRECTORY"] == str(stack.directory)
    result = said["result"]
    assert (result["order"], result["cap"], result["dtype"], result["clock"]) == (3, "25", "float32", "perf_counter")
    assert result["seconds"] > 0
    assert len(result["samples"]) == 3
    assert all(sample > 0 for sample in result["samples"])
    assert set(result["timings"]) == {"fork", "context", "allocate", "warm_up", "measure", "busy"}
    assert 1 <= result["pieces"]["in_flight_most"] <= 2
    assert result["warm_up_iterations"] == 2
    assert "seed 7" in result["input_values"]
    assert said["gone"] == {"order": 3, "cap": "25", "pid": pid, "status": 0, "exit": 0, "signal": None}
    (left,) = stack.left(1)
    assert left["in_flight"] == 0
    assert left["most"] <= 2


def test_many_cells_one_launcher_each_a_client_of_its_own(start, stack) -> None:
    launcher = start()
    pids = [launcher.through(order, cap=cap)["attached"]["pid"] for order, cap in enumerate(("100", "50", "10"))]
    assert len(set(pids)) == 3
    assert [line["cap"] for line in stack.journal() if line["what"] == "attached"] == ["100", "50", "10"]
    launcher.say(end=True)
    assert launcher.hear() is None
    assert launcher.ended() == 0


def test_no_work_runs_before_go(start, stack) -> None:
    launcher = start()
    launcher.cell()
    launcher.expect("forked")
    launcher.expect("attached")
    launcher.say(bye=True)
    failed = launcher.expect("failed")
    assert (failed["phase"], failed["reason"]) == ("attached", "stopped")
    launcher.expect("gone")
    assert stack.left(1)[0]["pieces"] == 0


def test_the_child_holds_its_lifeline_its_output_and_the_lock_and_nothing_else(start, stack) -> None:
    launcher = start()
    launcher.cell()
    pid = launcher.expect("forked")["pid"]
    launcher.expect("attached")
    open_files = {str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    launchers_input = str(Path(f"/proc/{launcher.pid}/fd/0").readlink())
    assert launchers_input not in open_files
    kinds = sorted(name.split(":")[0] if name.startswith(("pipe", "socket")) else name for name in open_files)
    log = str(Path(f"/proc/{launcher.pid}/fd/2").readlink())
    assert kinds == sorted(["/dev/null", log, str(stack.directory), "pipe", "pipe", "socket"])
    launcher.say(bye=True)
    launcher.expect("failed")
    launcher.expect("gone")


def test_the_lock_is_held_until_the_last_child_has_left_even_past_the_launchers_death(start, stack) -> None:
    first = start()
    stack.receive_clients("hang")
    first.cell()
    child = first.expect("forked")["pid"]
    stack.noted("hung")
    os.kill(first.pid, 9)
    assert first.ended() == -9
    refused = start(ready=False)
    failed = refused.expect("failed")
    assert (failed["phase"], failed["reason"]) == ("launcher", "sweep_running")
    assert refused.ended() == 1
    stack.receive_clients("normal")
    stack.left(1)
    for _ in range(500):
        if (
            not Path(f"/proc/{child}").exists()
            or Path(f"/proc/{child}/stat").read_text().rsplit(")")[-1].split()[0] == "Z"
        ):
            break
    start()


def test_the_lock_shows_the_launcher_in_proc_locks(start, stack) -> None:
    launcher = start()
    inode = str(stack.directory.stat().st_ino)
    holders = [line.split()[4] for line in Path("/proc/locks").read_text().splitlines() if f":{inode} " in line]
    assert holders == [str(launcher.pid)]


def test_a_library_that_prints_prints_into_the_log(start, log) -> None:
    launcher = start()
    one, two = (Path(f"/proc/{launcher.pid}/fd/{number}").readlink() for number in (1, 2))
    assert one == two == log


def test_what_a_container_brings_along_does_not_reach_the_library(start) -> None:
    launcher = start(
        environment={
            "CUDA_LAUNCH_BLOCKING": "1",
            "CUDA_MPS_CLIENT_PRIORITY": "1",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1G",
            "CUBLAS_WORKSPACE_CONFIG": ":16:8",
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
            "OMP_NUM_THREADS": "16",
            "CUDA_VISIBLE_DEVICES": "GPU-1",
        }
    )
    environment = launcher.through()["attached"]["environment"]
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert environment["OMP_NUM_THREADS"] == "1"
    assert not {name for name in environment if name.startswith(("CUBLAS", "PYTORCH"))}
    assert {name for name in environment if name.startswith("CUDA_")} == {
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
        "CUDA_MPS_PIPE_DIRECTORY",
        "CUDA_VISIBLE_DEVICES",
    }


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("full", "server_full"),
        ("refuse", "cuda_unavailable"),
        ("close", "cuda_unavailable"),
        ("nonsense", "client_error"),
    ],
)
def test_a_server_that_does_not_take_the_client_is_a_reason(start, stack, mode: str, reason: str) -> None:
    launcher = start()
    stack.receive_clients(mode)
    launcher.cell()
    launcher.expect("forked")
    failed = launcher.expect("failed")
    assert (failed["phase"], failed["reason"]) == ("context", reason)
    assert launcher.expect("gone")["exit"] == 1
    stack.receive_clients("normal")
    launcher.through(order=2)


def test_a_kernel_that_would_take_too_long_is_not_run(start, stack) -> None:
    launcher = start()
    launcher.cell(size=4096, cap="1")
    launcher.expect("forked")
    launcher.expect("attached")
    launcher.say(go=True)
    failed = launcher.expect("failed", seconds=60)
    assert (failed["phase"], failed["reason"]) == ("predict", "kernel_too_long")
    assert launcher.expect("gone")["exit"] == 1
    assert stack.left(1)[0]["in_flight"] == 0


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"not JSON\n", "client_nonsense"),
        (b"[]\n", "client_nonsense"),
        (b'{"kill": true}\n', "client_nonsense"),
        (b'{"cell": 5}\n', "client_nonsense"),
        (b"\xff\xfe\n", "client_nonsense"),
        (json.dumps({"cell": {"order": 1, "cap": "0", "deadline": 1}}).encode() + b"\n", "cap_out_of_range"),
        (json.dumps({"cell": {"order": 1, "cap": "101"}}).encode() + b"\n", "cap_out_of_range"),
        (json.dumps({"cell": {"order": 1, "cap": "abc"}}).encode() + b"\n", "cap_out_of_range"),
        (json.dumps({"cell": {"order": 1, "cap": "50", "deadline": 9, "size": 1}}).encode() + b"\n", "client_nonsense"),
    ],
)
def test_a_request_that_makes_no_sense_starts_nothing(start, stack, line: bytes, reason: str) -> None:
    launcher = start()
    launcher.launched.send(line)
    failed = launcher.expect("failed")
    assert (failed["phase"], failed["reason"]) == ("launcher", reason)
    launcher.through()
    assert len([entry for entry in stack.journal() if entry["what"] == "attached"]) == 1


def test_a_second_cell_before_the_first_is_gone_is_refused(start) -> None:
    launcher = start()
    launcher.cell(1)
    launcher.expect("forked")
    launcher.expect("attached")
    launcher.cell(2)
    failed = launcher.expect("failed")
    assert (failed["order"], failed["reason"]) == (2, "client_nonsense")
    launcher.say(go=True)
    launcher.expect("result")
    launcher.say(bye=True)
    launcher.expect("gone")


def test_an_import_that_fails_is_a_reason(start, client, stack) -> None:
    launcher = start("--backend", "torch", ready=False)
    heard = launcher.hear()
    if heard[0] == "ready":
        pytest.skip("there is a torch here")
    assert (heard[1]["phase"], heard[1]["reason"]) == ("launcher", "client_import_failed")
    assert "torch" in heard[1]["detail"]
    assert launcher.ended() == 1


def test_a_pipe_directory_that_is_not_there_is_a_reason(start) -> None:
    launcher = start("--pipe-directory", "/no/such/directory", ready=False)
    assert launcher.expect("failed")["reason"] == "daemon_absent"


def test_the_zipapp_needs_nothing_of_mpswatch_and_no_new_python(client) -> None:
    with zipfile.ZipFile(client) as bundle:
        for name in bundle.namelist():
            tree = ast.parse(bundle.read(name), feature_version=(3, 8))
            imported = {
                alias.name.split(".")[0]
                for node in ast.walk(tree)
                if isinstance(node, ast.Import)
                for alias in node.names
            } | {
                str(node.module).split(".")[0]
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom) and node.level == 0
            }
            assert imported <= sys.stdlib_module_names | {"torch", "numpy", "mpswatch_client"}, name


def test_the_zipapp_is_the_same_for_the_same_source(client, tmp_path) -> None:
    again = client_zipapp(tmp_path)
    assert again.name == client.name
    assert again.read_bytes() == client.read_bytes()
    assert client_zipapp(tmp_path) == again
    assert [path.name for path in tmp_path.iterdir()] == [again.name]

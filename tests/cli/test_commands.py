"""The command line: exit codes, what goes to which stream, and what a command loads."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from mpswatch.daemon.exit import Exit

REFERENCE = Path(__file__).parents[1] / "reference" / "mps-cap-sweep.v1.json"
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def mpswatch(tmp_path):
    """Run a command in an empty place; gives what it printed and its exit code."""

    def run(*arguments, **environment):
        return subprocess.run(
            [sys.executable, "-m", "mpswatch", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "STATE_DIRECTORY": str(tmp_path / "state"), **environment},
        )

    return run


def test_the_version_is_one_line(mpswatch):
    done = mpswatch("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"mpswatch \d+\.\d+\.\d+\n", done.stdout)


def test_help_names_every_exit_code(mpswatch):
    said = " ".join(mpswatch("--help").stdout.split())
    for code in Exit:
        assert f"{code.value} {code.name.lower().replace('_', ' ')}" in said


def test_the_documented_exit_codes_are_those_there_are():
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", (DOCS / "exit-codes.md").read_text(), re.MULTILINE)
    assert {(int(code), name) for code, name in rows} == {(code.value, code.name) for code in Exit}


def test_every_command_has_help(mpswatch):
    from mpswatch.cli.group import COMMANDS

    for name in COMMANDS:
        done = mpswatch(name, "--help")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("Usage: mpswatch ")


def test_a_wrong_command_line_exits_2(mpswatch):
    for arguments in (["nothing"], ["schema", "nothing"], ["run", "--nothing"], ["demo", "--json"]):
        done = mpswatch(*arguments)
        assert done.returncode == Exit.USAGE
        assert done.stdout == ""


def test_a_faulty_configuration_names_every_fault_and_exits_2(mpswatch, tmp_path):
    path = tmp_path / "bad.yml"
    path.write_text("poll: {interval: never}\nsweep: {caps: [0], headrom: 3}\n")
    for command in (["check-config", path], ["run", "--config.file", path], ["poll", "--config.file", path]):
        done = mpswatch(*command)
        assert done.returncode == Exit.USAGE
        for place in ("poll.interval (line 1)", "sweep.caps (line 2)", "sweep.headrom (line 2)"):
            assert place in done.stderr
        assert "did you mean headroom?" in done.stderr


def test_check_config_accepts_the_deployed_example_and_prints_it(mpswatch):
    example = Path(__file__).parents[2] / "deploy" / "mpswatch.example.yml"
    assert mpswatch("check-config", example).returncode == 0
    assert mpswatch("check-config", "--example").stdout == example.read_text()
    assert json.loads(mpswatch("check-config", "--json").stdout)["poll"]["interval"] == 15


@pytest.mark.parametrize("kind", ["sweep", "poll", "event"])
def test_a_schema_is_a_valid_schema(mpswatch, kind):
    schema = json.loads(mpswatch("schema", kind).stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    if kind == "sweep":
        jsonschema.validate(json.loads(REFERENCE.read_text()), schema)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_completion_script_is_printed(mpswatch, shell):
    done = mpswatch("completion", shell)
    assert done.returncode == 0
    assert "_MPSWATCH_COMPLETE" in done.stdout


def test_bash_completes_commands(mpswatch):
    words = {"_MPSWATCH_COMPLETE": "bash_complete", "COMP_WORDS": "mpswatch ar", "COMP_CWORD": "1"}
    assert mpswatch(**words).stdout == "plain,archive\n"


def test_validate_takes_any_file_and_names_the_place_that_is_bad(mpswatch, tmp_path):
    assert mpswatch("archive", "validate", REFERENCE).returncode == 0
    document = json.loads(REFERENCE.read_text())
    document["cells"][2]["tflops"] = "fast"
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps(document))
    done = mpswatch("archive", "validate", REFERENCE, bad)
    assert done.returncode == Exit.FAILED
    assert f"{bad}: " in done.stderr
    assert "$.cells[2].tflops" in done.stderr
    done = mpswatch("archive", "validate", REFERENCE, bad, "--json")
    assert (done.returncode, done.stderr) == (Exit.FAILED, "")
    good, faulty = json.loads(done.stdout)
    assert good == {"path": str(REFERENCE), "fault": None}
    assert faulty["path"] == str(bad)
    assert "$.cells[2].tflops" in faulty["fault"]
    assert json.loads(mpswatch("archive", "validate", REFERENCE, "--json", "--quiet").stdout) == []
    cut = tmp_path / "cut.json"
    cut.write_bytes(REFERENCE.read_bytes()[:1000])
    foreign = tmp_path / "foreign.json"
    foreign.write_text('{"hello": 1}')
    for path in (cut, foreign, tmp_path / "nothing.json"):
        done = mpswatch("archive", "validate", path)
        assert done.returncode == Exit.FAILED
        assert str(path) in done.stderr


def test_an_archive_can_be_listed_and_shown(mpswatch, tmp_path):
    from mpswatch.archive import Archive
    from mpswatch.documents import SweepDocument, from_json

    directory = tmp_path / "archive"
    archive = Archive(directory)
    archive.prepare()
    path = archive.write(from_json(REFERENCE.read_bytes(), SweepDocument))
    listed = mpswatch("archive", "ls", "--archive", directory)
    assert listed.stdout.startswith("2026-08-04T12:29:57Z")
    (entry,) = json.loads(mpswatch("archive", "ls", "--archive", directory, "--json").stdout)
    assert entry["path"] == str(path)
    shown = mpswatch("archive", "show", "--archive", directory).stdout
    for figure in ("49.6", "36.4", "22.7", "█"):
        assert figure in shown
    again = json.loads(mpswatch("archive", "show", path, "--json").stdout)
    assert again["cells"][0]["tflops"] == 49.56
    assert mpswatch("archive", "show", "nothing", "--archive", directory).returncode == Exit.FAILED
    assert mpswatch("archive", "ls", "--archive", tmp_path / "empty").stdout == ""


def test_a_taken_port_is_one_clear_line_with_the_remedy(mpswatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = mpswatch("run", "--web.listen-address", f"127.0.0.1:{port}")
    assert done.returncode == Exit.PORT
    line, remedy = done.stderr.splitlines()
    assert f"127.0.0.1:{port}" in line
    assert "--web.listen-address" in remedy


def test_a_faulty_web_file_stops_the_start(mpswatch, tmp_path):
    path = tmp_path / "web.yml"
    path.write_text("tls_server_config: {cert_file: nothing.pem}\n")
    done = mpswatch("run", "--web.config.file", path, "--web.listen-address", "127.0.0.1:0")
    assert done.returncode == Exit.USAGE
    assert "web.yml" in done.stderr


def test_pause_and_resume_say_what_they_did(mpswatch, tmp_path):
    assert mpswatch("pause", "--archive", tmp_path / "a").stdout == "sweeps are paused\n"
    assert mpswatch("pause", "--archive", tmp_path / "a").stdout == "sweeps were paused already\n"
    assert mpswatch("resume", "--archive", tmp_path / "a").stdout == "sweeps run again\n"
    assert mpswatch("resume", "--archive", tmp_path / "a").stdout == "sweeps were not paused\n"
    for command, paused, changed in (
        ("pause", True, True),
        ("pause", True, False),
        ("resume", False, True),
        ("resume", False, False),
    ):
        said = json.loads(mpswatch(command, "--archive", tmp_path / "a", "--json").stdout)
        assert said == {"archive": str(tmp_path / "a"), "paused": paused, "changed": changed}
    (tmp_path / "file").write_text("")
    done = mpswatch("pause", "--archive", tmp_path / "file")
    assert done.returncode == Exit.FAILED
    assert "--archive" in done.stderr


def test_healthcheck_fails_where_nobody_answers(mpswatch):
    done = mpswatch("healthcheck", "--web.listen-address", "127.0.0.1:1")
    assert done.returncode == Exit.FAILED
    assert "nobody answers" in done.stderr
    done = mpswatch("healthcheck", "--ready", "--json", "--web.listen-address", "127.0.0.1:1")
    assert done.returncode == Exit.FAILED
    said = json.loads(done.stdout)
    assert (said["ok"], said["status"], said["url"]) == (False, None, "http://127.0.0.1:1/-/ready")
    assert "refused" in said["error"]


def test_doctor_opens_with_a_verdict_and_gives_a_remedy_for_what_is_missing(mpswatch, tmp_path):
    done = mpswatch("doctor", PATH="/nonexistent", CUDA_MPS_PIPE_DIRECTORY=str(tmp_path / "nothing"))
    assert done.returncode == Exit.FAILED
    assert done.stdout.startswith("sweeps will not run: ")
    for lacking in ("MEND  control program", "MEND  pipe directory"):
        assert lacking in done.stdout
    plain = json.loads(mpswatch("doctor", "--json", PATH="/nonexistent").stdout)
    assert plain["sweeps_will_run"] is False
    assert all(line["remedy"] for line in plain["lines"] if line["what"] in {"control program", "pipe directory"})
    assert "see `mpswatch doctor`" not in done.stdout


def test_a_poll_without_anything_says_what_did_not_answer(mpswatch, tmp_path):
    environment = {"PATH": "/nonexistent", "CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "nothing")}
    done = mpswatch("poll", "--json", **environment)
    assert done.returncode == Exit.FAILED
    snapshot = json.loads(done.stdout)
    assert snapshot["tenants"]["value"] is None
    assert "control_program_missing" in done.stderr


def test_whoever_reads_our_output_may_leave(mpswatch):
    script = f"{sys.executable} -m mpswatch schema sweep | head -c 1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "{"
    assert "Traceback" not in done.stderr


def test_a_list_whose_reader_had_enough_is_in_order(tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    for number in range(2000):
        (runs / f"gpu1_4a1bc0de_20261130T{number // 100:02}{number % 60:02}00Z_mps_quick_run{number:04}.json").touch()
    listing = f"{sys.executable} -m mpswatch archive ls --limit 2000 --archive {tmp_path}"
    whole = subprocess.run(["bash", "-c", listing], capture_output=True, text=True, timeout=60, check=False)
    assert len(whole.stdout) > 1 << 16, "more than a pipe holds"
    script = f"{listing} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == whole.stdout.splitlines(keepends=True)[0]


@pytest.mark.parametrize("cap", ["abc", "0", "101", "nan", ""])
def test_a_history_of_a_cap_that_is_none_is_a_usage_error(mpswatch, tmp_path, cap):
    (tmp_path / "runs").mkdir()
    done = mpswatch("history", "--cap", cap, "--archive", tmp_path)
    assert done.returncode == Exit.USAGE
    assert "Traceback" not in done.stderr
    assert mpswatch("history", "--cap", "50.0", "--archive", tmp_path).returncode == 0


def test_a_demonstration_that_has_no_place_is_one_clear_line(mpswatch, tmp_path):
    (tmp_path / "file").touch()
    done = mpswatch("demo", "--once", "--stack", tmp_path / "file" / "stack")
    assert done.returncode == Exit.REHEARSAL
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[0] == f"mpswatch: {tmp_path}/file/stack cannot be made: Not a directory"


def test_a_demonstration_that_cannot_start_promises_no_address(mpswatch, tmp_path):
    path = tmp_path / "web.yml"
    path.write_text("tls_server_config: {cert_file: nothing.pem}\n")
    done = mpswatch("demo", "--web.config.file", path, "--web.listen-address", "127.0.0.1:0")
    assert done.returncode == Exit.USAGE
    assert done.stdout == ""
    assert "web.yml" in done.stderr


@pytest.mark.parametrize("option", ["cert_file", "key_file", "client_ca_file"])
def test_a_pipe_for_a_certificate_stops_the_start_and_is_named_by_doctor(mpswatch, tmp_path, option):
    os.mkfifo(tmp_path / "fifo")
    path = tmp_path / "web.yml"
    path.write_text(f"tls_server_config: {{{option}: fifo}}\n")
    said = f"tls_server_config.{option} {tmp_path / 'fifo'} is not a regular file"
    assert said in mpswatch("run", "--web.config.file", path, "--web.listen-address", "127.0.0.1:0").stderr
    assert said in mpswatch("doctor", "--web.config.file", path).stdout


@pytest.mark.parametrize(
    ("redirection", "code"),
    [(">&-", 0), ("<&- >&- 2>&-", 0), (">/dev/full", 1), ("2>&-", 0)],
)
def test_streams_that_are_closed_or_full_are_no_fault_of_ours(redirection, code):
    script = f"{sys.executable} -m mpswatch schema sweep {redirection}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    if code:
        assert "No space left on device" in done.stderr


def test_what_a_locale_cannot_encode_does_not_end_a_table(mpswatch):
    done = mpswatch("archive", "show", REFERENCE, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "?" in done.stdout


@pytest.mark.parametrize("text", [None, "basic_auth_user: {a: b}\n"])
def test_doctor_names_a_web_file_that_cannot_be_honoured_and_promises_no_password(mpswatch, tmp_path, text):
    path = tmp_path / "web.yml"
    if text is not None:
        path.write_text(text)
    said = " ".join(mpswatch("doctor", "--web.config.file", path).stdout.split())
    assert "MEND web file:" in said
    assert "behind the passwords of the web file" not in said


def test_doctor_promises_no_password_where_the_web_file_has_none(mpswatch, tmp_path):
    path = tmp_path / "web.yml"
    path.write_text("")
    anywhere = ("--web.listen-address", "127.0.0.1:0")  # the usual port may be taken here
    said = " ".join(mpswatch("doctor", "--web.config.file", path, *anywhere).stdout.split())
    assert "web file:" not in said
    assert "without a password" in said


def test_a_comparison_of_rehearsals_says_so(mpswatch, tmp_path):
    real, rehearsed = REFERENCE, tmp_path / "rehearsed.json"
    run = json.loads(real.read_text().replace('"measured"', '"simulated"')) | {"simulated": True}
    run["cells"] = [cell | {"state": "simulated"} for cell in run["cells"]]
    rehearsed.write_text(json.dumps(run))
    assert "SIMULATED" not in mpswatch("compare", real, real).stdout
    assert "SIMULATED" in mpswatch("compare", real, rehearsed).stdout


def test_a_foreign_document_with_simulated_quantities_does_not_pass_for_measured(mpswatch, tmp_path):
    path = tmp_path / "run.json"
    path.write_text(REFERENCE.read_text().replace('"measured"', '"simulated"'))
    done = mpswatch("archive", "show", path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "simulated is False" in done.stderr


def test_validate_without_paths_checks_the_archive_and_its_journal(mpswatch, tmp_path):
    archive = tmp_path / "archive"
    (archive / "runs").mkdir(parents=True)
    (archive / "runs" / "run.json.gz").write_bytes(gzip.compress(REFERENCE.read_bytes()))
    event = {"kind": "started", "at": "2026-11-30T12:00:00Z", "host": "gpu-07", "message": "so it was"}
    (archive / "journal.jsonl").write_text(json.dumps(event) + "\n")
    done = mpswatch("archive", "validate", "--archive", archive)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("in order") == 2
    (archive / "journal.jsonl").write_text(json.dumps(event) + "\n{cut off\n")
    done = mpswatch("archive", "validate", "--quiet", "--archive", archive)
    assert (done.returncode, done.stdout) == (Exit.FAILED, "")
    assert done.stderr.startswith(f"{archive}/journal.jsonl: line 2: ")


def test_a_file_name_cannot_write_to_the_terminal(mpswatch, tmp_path):
    (tmp_path / "a\x1b[31m\nb.json").write_bytes(REFERENCE.read_bytes())
    assert mpswatch("archive", "validate", tmp_path).stdout == f"{tmp_path}/a\\x1b[31m\\x0ab.json: in order\n"
    runs = tmp_path / "archive" / "runs"
    runs.mkdir(parents=True)
    (runs / "h\x1b[2J_GPU-1_20261130T120000Z_d\u202e_quick_r1.json").touch()
    listed = mpswatch("archive", "ls", "--archive", runs.parent).stdout
    assert "h\\x1b[2J" in listed
    assert "d\\u202e" in listed


def test_a_configuration_cannot_write_to_the_terminal(mpswatch, tmp_path):
    file = tmp_path / "mpswatch.yml"
    file.write_text('"sw\\e[2Jeep": 1\n"po\\u200bll": 2\n')
    said = mpswatch("check-config", file).stderr
    assert "sw\\x1b[2Jeep" in said
    assert "po\\u200bll" in said
    assert len(said.splitlines()) == 4  # the count, a line a fault, the remedy


def test_a_throughput_beyond_all_reason_is_no_run_and_the_largest_that_is_one_is_still_a_table(mpswatch, tmp_path):
    run = json.loads(REFERENCE.read_text())
    path = tmp_path / "run.json"
    run["cells"][0]["tflops"] = 1e9
    path.write_text(json.dumps(run))
    done = mpswatch("archive", "show", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1e+09" in done.stdout
    run["cells"][0]["tflops"] = 1e308
    path.write_text(json.dumps(run))
    done = mpswatch("archive", "validate", path)
    assert done.returncode == 1
    assert done.stderr == f"{path}: Expected `float` <= 1000000000.0 - at `$.cells[0].tflops`\n"


def test_a_command_loads_nothing_that_it_does_not_use():
    script = (
        "import sys; from mpswatch.cli.group import mpswatch_command as m\n"
        "m.main(['check-config'], standalone_mode=False)\n"
        "print(sorted({'rich', 'structlog', 'uvicorn', 'apscheduler', 'numpy', 'pynvml'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_daemon_loads_neither_rich_nor_torch_nor_numpy():
    script = "import sys, mpswatch.daemon.run\nprint(sorted({'rich', 'torch', 'numpy'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "[]"


def test_signals_are_named_as_documented():
    text = (DOCS / "exit-codes.md").read_text()
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"):
        assert name in text
        assert hasattr(signal, name)


def test_a_sweep_that_is_ended_before_its_first_cell_was_not_refused(tmp_path):
    argv = [sys.executable, "-m", "mpswatch", "demo", "--once", "--archive", tmp_path / "archive"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as sweep:
        for line in sweep.stderr:
            if " as uid " in line:  # the client's launcher starts: it imports numpy before it measures
                break
        sweep.send_signal(signal.SIGINT)
        said = sweep.communicate(timeout=60)[1]
    assert sweep.returncode == 5
    assert "mpswatch: sweep ended before its first cell (stopped): " in said
    assert "refused" not in said
    assert not list((tmp_path / "archive/runs").iterdir())

"""A configuration: defaults without any file, every fault at once, contradictions by name."""

import os
from datetime import time
from pathlib import Path

import pytest

from mpswatch.config import ConfigError, default_state_directory, example, load


@pytest.fixture
def loaded(tmp_path):
    """Load a configuration file with this text."""

    def read(text, overrides=None, **rest):
        path = tmp_path / "mpswatch.yml"
        path.write_text(text)
        return load(path, overrides, **rest)

    return read


@pytest.fixture
def faults(loaded):
    """The faults of a configuration file with this text, as {place: message}."""

    def read(text, overrides=None):
        with pytest.raises(ConfigError) as caught:
            loaded(text, overrides)
        return {problem.place: problem.message for problem in caught.value.problems}

    return read


def test_nothing_has_to_be_configured():
    config = load(environ={"HOME": "/home/someone", "STATE_DIRECTORY": "/var/lib/mpswatch"})
    assert config.daemons[0].pipe_directory == "/tmp/nvidia-mps"
    assert config.archive.directory == "/var/lib/mpswatch"
    assert config.poll.interval == 15
    assert config.sweep.interval == 3600
    assert config.sweep.caps == ("100", "75", "50", "25", "10")
    assert config.web.listen_address == ("127.0.0.1", 10677)


def test_the_pipe_directory_comes_from_the_file_then_from_the_environment(loaded):
    environ = {"CUDA_MPS_PIPE_DIRECTORY": "/run/mps"}
    assert load(environ=environ).daemons[0].pipe_directory == "/run/mps"
    named = loaded("daemons: [{pipe_directory: /srv/mps, name: services}]", environ=environ)
    assert [(daemon.name, daemon.pipe_directory) for daemon in named.daemons] == [("services", "/srv/mps")]


def test_the_shipped_example_says_the_defaults_and_nothing_else(tmp_path):
    path = tmp_path / "example.yml"
    path.write_text(example())
    environ = {"STATE_DIRECTORY": "/var/lib/mpswatch"}
    assert load(path, environ=environ) == load(environ=environ)
    deployed = Path(__file__).parents[2] / "deploy" / "mpswatch.example.yml"
    assert deployed.read_text() == example()


def test_every_key_that_there_is_stands_in_the_example():
    from mpswatch.config.shape import as_plain

    def keys(plain, found):
        for key, value in plain.items():
            found.add(key)
            if isinstance(value, dict):
                keys(value, found)
        return found

    text = example()
    assert not [key for key in keys(as_plain(load()), set()) if f"{key}:" not in text]


def test_all_faults_are_reported_at_once_each_with_its_place(faults):
    found = faults("""
sweep:
  intervall: 1h
  interval: 1parsec
  caps: [100, 0.5]
  client: {python: 3, environment: {LD_PRELOAD: x}}
web: {listen_address: nowhere}
daemons:
  - {name: a, pipe_dir: /x}
log: {level: loud}
""")
    assert found.keys() == {
        "sweep.intervall",
        "sweep.interval",
        "sweep.caps",
        "sweep.client.python",
        "sweep.client.environment",
        "web.listen_address",
        "daemons[0].pipe_dir",
        "daemons[0].pipe_directory",
        "log.level",
    }
    assert "did you mean interval?" in found["sweep.intervall"]
    assert "duration" in found["sweep.interval"]
    assert "debug, info, warning, error" in found["log.level"]


def test_a_fault_says_its_line(loaded):
    with pytest.raises(ConfigError, match=r"poll.interval \(line 3\)"):
        loaded("host: gpu-07\npoll:\n  interval: soon\n")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("sweep: {headroom: 48}", "sweep.headroom"),
        ("sweep: {cell_deadline: 10m}", "sweep.cell_deadline"),
        ("sweep: {jitter: 2h}", "sweep.jitter"),
        ("sweep: {interval: 5s, jitter: 0}", "sweep.interval"),
        ("poll: {interval: 1s}", "mps.deadline"),
        ("sweep: {time_zone: Mars/Olympus}", "sweep.time_zone"),
        ('sweep: {quiet_hours: ["00:00-12:00", "12:00-00:00"]}', "sweep.quiet_hours"),
        ("daemons: [{pipe_directory: /a}, {pipe_directory: /a}]", "daemons[1].pipe_directory"),
        ("daemons: [{name: a, pipe_directory: /a}, {name: a, pipe_directory: /b}]", "daemons[1].name"),
        ("daemons: [{pipe_directory: relative}]", "daemons[0].pipe_directory"),
        ("daemons: []", "daemons"),
    ],
)
def test_settings_that_contradict_each_other_are_named(faults, text, place):
    assert place in faults(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("poll: {interval: 1s}\npoll: {interval: 2s}\n", "twice"),
        ("poll:\n  interval: 1s\n  interval: 2s\n", "twice"),
        ("poll: [", "not YAML"),
        ("- 1\n- 2\n", "no keys"),
        ("just words", "no keys"),
        ("a: &a {b: *a}", "holds it"),
        ("poll: {interval: !!python/object:os.system x}", "not YAML"),
        ("\x00", "not YAML"),
        ("host: ''", "host"),
    ],
)
def test_what_is_not_a_configuration_is_said_and_not_guessed_at(loaded, text, said):
    with pytest.raises(ConfigError, match=said):
        loaded(text)


def test_a_file_that_is_not_there_is_one_clear_line(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "nothing.yml")


def test_flags_go_before_the_file_and_the_file_before_what_a_command_presets(loaded):
    text = "poll: {interval: 20s}\nweb: {listen_address: ':1'}\n"
    config = loaded(
        text, {"web.listen_address": "[::1]:2", "log.level": None}, base={"poll.interval": "2s", "host": "h"}
    )
    assert config.web.listen_address == ("::1", 2)
    assert config.poll.interval == 20
    assert config.host == "h"
    assert config.log.level == "info"


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("15s", 15), ("1h30m", 5400), ("250ms", 0.25), ("1.5h", 5400), (90, 90), ("90", 90), ("2d", 172800)],
)
def test_durations_are_written_as_people_write_them(loaded, written, seconds):
    assert loaded(f"archive: {{keep_age: {written}}}").archive.keep_age == seconds


@pytest.mark.parametrize("written", ["-5s", "5 s", "1w", "''", "true", ".inf", "[1]", "0"])
def test_what_is_no_duration_is_refused(faults, written):
    assert "archive.keep_age" in faults(f"archive: {{keep_age: {written}}}")


@pytest.mark.parametrize(
    ("written", "size"), [("10GiB", 10 << 30), ("500MB", 500_000_000), (4096, 4096), ("1 KiB", 1024)]
)
def test_sizes_are_written_as_people_write_them(loaded, written, size):
    assert loaded(f"archive: {{keep_bytes: {written}}}").archive.keep_bytes == size


@pytest.mark.parametrize("written", ["10Gib", "-1", "1.5", "lots", "false"])
def test_what_is_no_size_is_refused(faults, written):
    assert "archive.keep_bytes" in faults(f"archive: {{keep_bytes: {written}}}")


def test_caps_become_shortest_decimal_strings(loaded):
    assert loaded("sweep: {caps: '100, 50.0,12.50'}").sweep.caps == ("100", "50", "12.5")
    assert loaded("sweep: {caps: [75, 2.5]}").sweep.caps == ("75", "2.5")


@pytest.mark.parametrize("written", ["[0]", "[101]", "[-5]", "[abc]", "['']", "[]", "[50, 50.0]", "[true]", "[.nan]"])
def test_a_cap_that_mps_would_ignore_without_a_word_is_refused(faults, written):
    assert "sweep.caps" in faults(f"sweep: {{caps: {written}}}")


def test_quiet_hours_may_run_over_midnight(loaded):
    config = loaded('sweep: {quiet_hours: "22:00-06:00"}')
    assert config.sweep.quiet_hours == ((time(22), time(6)),)


@pytest.mark.parametrize("written", ["'25:00-26:00'", "'08:00-08:00'", "'8-9'", "[8]"])
def test_what_is_no_span_is_refused(faults, written):
    assert "sweep.quiet_hours" in faults(f"sweep: {{quiet_hours: {written}}}")


@pytest.mark.parametrize(
    ("text", "place", "named"),
    [
        ("sweep: {caps: [100, 0, abc, true, 200]}", "sweep.caps", ["'0'", "'abc'", "'True'", "'200'"]),
        ("sweep: {caps: '0,50,75,50,75.0'}", "sweep.caps", ["'0'", "twice: 50, 75"]),
        (
            "sweep: {quiet_hours: ['25:00-26:00', '08:00-09:00', night, '10:00-10:00']}",
            "sweep.quiet_hours",
            ["'25:00-26:00' is not a time of day", "'night' is not a span", "'10:00-10:00' is empty"],
        ),
        ("metrics: {tenant_groups: [pod, planet, moon]}", "metrics.tenant_groups", ["'planet'", "'moon'"]),
        ("interference: {kinds: [matmul, reading, writing]}", "interference.kinds", ["'reading'", "'writing'"]),
        (
            "sweep: {client: {environment: {LD_PRELOAD: x, A-B: x, C: 1, FINE: y}}}",
            "sweep.client.environment",
            ["LD_PRELOAD: set by", "'A-B' is not", "C: the value"],
        ),
    ],
)
def test_a_list_names_everything_in_it_that_is_wrong_and_nothing_else(faults, text, place, named):
    said = faults(text)[place].split(": ", 1)[1]
    assert [name for name in named if name not in said] == []
    assert not [right for right in ("'100'", "08:00", "'pod'", "'matmul'", "FINE") if right in said]


@pytest.mark.parametrize("written", ["'::1:80'", "'localhost'", "'host:99999'", "'host:'", "80"])
def test_what_is_no_address_is_refused(faults, written):
    assert "web.listen_address" in faults(f"web: {{listen_address: {written}}}")


@pytest.mark.parametrize(
    "name", ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "LD_PRELOAD", "CUBLAS_WORKSPACE_CONFIG", "NOTIFY_SOCKET"]
)
def test_the_client_is_given_nothing_that_changes_what_is_measured(faults, name):
    found = faults(f"sweep: {{client: {{environment: {{{name}: '1'}}}}}}")
    assert name in found["sweep.client.environment"]


def test_the_state_directory_is_systemds_then_roots_then_the_users_own(monkeypatch):
    assert default_state_directory({"STATE_DIRECTORY": "/var/lib/a:/var/lib/b"}) == "/var/lib/a"
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert default_state_directory({"HOME": "/home/u"}) == "/home/u/.local/state/mpswatch"
    assert default_state_directory({"HOME": "/home/u", "XDG_STATE_HOME": "/state"}) == "/state/mpswatch"
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert default_state_directory({"HOME": "/root"}) == "/var/lib/mpswatch"


@pytest.mark.parametrize(
    ("text", "place", "line"),
    [("host: x\n? [a, b]\n: 3\n", "", 2), ("sweep:\n  ? {caps: 1}\n  : 3\n", "sweep", 2)],
)
def test_a_key_that_is_no_text_is_a_fault_with_its_place_and_line(loaded, text, place, line):
    with pytest.raises(ConfigError) as caught:
        loaded(text)
    (problem,) = caught.value.problems
    assert (problem.place, problem.line) == (place, line)
    assert "a key is a text" in problem.message


def test_a_pipe_or_a_directory_is_refused_by_what_it_is_and_not_waited_for(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (fifo, Path("/dev/null")):
        with pytest.raises(ConfigError, match="is not a regular file"):
            load(path)
    with pytest.raises(ConfigError, match="directory"):
        load(tmp_path)


def test_a_link_to_a_file_is_read_as_kubernetes_mounts_them(tmp_path):
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "mpswatch.yml").write_text("poll: {interval: 7s}")
    (tmp_path / "mpswatch.yml").symlink_to("..data/mpswatch.yml")
    assert load(tmp_path / "mpswatch.yml").poll.interval == 7


ALIASES = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefg", "bcdefgh", strict=True)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ALIASES, "keys and items"),
        ("host: x\n" + "# filled up\n" * 30_000, "larger than"),
        ("[" * 3_000, "is nested too deeply"),
    ],
)
def test_a_file_that_would_keep_a_reload_busy_for_minutes_is_refused_at_once(faults, text, said):
    found = faults(text)
    assert said in found[""]


@pytest.mark.parametrize("written", ["99999999999d", "9" * 400, f"'{'9' * 400}s'", "1e17"])
def test_a_duration_that_no_clock_can_add_is_a_fault(faults, written):
    assert "archive.keep_age" in faults(f"archive: {{keep_age: {written}}}")


@pytest.mark.parametrize("written", ["9" * 400, f"'{'9' * 400}'", "99999999TiB", ".inf"])
def test_a_size_beyond_every_disk_is_a_fault(faults, written):
    assert "archive.keep_bytes" in faults(f"archive: {{keep_bytes: {written}}}")


def test_what_a_plan_would_refuse_later_is_refused_here(faults):
    found = faults("sweep: {size: 70000, iters: 99999999999, stack_uid: 4294967295}")
    assert set(found) == {"sweep.size", "sweep.iters", "sweep.stack_uid"}
    assert "sweep.deadline" in faults("sweep: {deadline: 2d}")


@pytest.mark.parametrize(
    "place", ["sweep.size", "sweep.settle", "archive.keep_bytes", "web.listen_address", "log.level"]
)
def test_a_number_that_nobody_could_write_out_is_a_fault_with_its_place(faults, place):
    section, key = place.split(".")
    assert faults(f"{section}: {{{key}: 0x{'f' * 5000}}}") == {place: "a number of more than 1000 digits"}
    assert "surrogates" in faults(f'{section}: {{{key}: "\\ud800"}}')[place]


@pytest.mark.parametrize("value", ["!!timestamp soon", "!!bool maybe", "!!int ''", "!!float ''"])
def test_a_value_that_does_not_fit_its_tag_is_a_fault(faults, value):
    kind = value.split()[0].removeprefix("!!")
    assert faults(f"host: {value}") == {"host": f"is no {kind}, and YAML takes it for one: put a text in quotes"}


def test_a_day_that_no_month_has_is_named_with_its_line_as_a_value_and_as_a_key(loaded):
    with pytest.raises(ConfigError, match=r"2026-13-45 \(line 2\): is no timestamp.*month must be in"):
        loaded("poll: {}\n2026-13-45: 1")
    with pytest.raises(ConfigError, match=r"sweep.interval \(line 3\): is no timestamp"):
        loaded("poll: {}\nsweep:\n  interval: 2026-13-45")


def test_a_file_that_is_nested_too_deeply_is_named_with_the_line(loaded):
    with pytest.raises(ConfigError, match=r"is nested too deeply \(line 3\)"):
        loaded("poll: {}\nsweep:\n  " + "[" * 5000)


@pytest.mark.parametrize("name", [r"\e[31mX", "a b", "a/../c", r"\u202eabc", "", "x" * 300, r"a\nb"])
def test_a_host_is_named_by_what_can_be_seen_and_can_name_a_file(faults, name):
    assert set(faults(f'host: "{name}"')) == {"host"}


@pytest.mark.parametrize("name", ["gpu-host", "gpu_7.example.com", "knoten-ä", "10.0.0.7", "fe80::1"])
def test_a_name_that_hosts_have_is_a_host(loaded, name):
    assert loaded(f'host: "{name}"').host == name

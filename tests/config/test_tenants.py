"""Expected services, welcome strangers, the client's runtime: what cannot both be meant stops the start, both named."""

from __future__ import annotations

import pytest

from mpswatch.config import ConfigError, load
from mpswatch.config.rules import expectations


@pytest.fixture
def read(tmp_path):
    def read(text):
        path = tmp_path / "mpswatch.yml"
        path.write_text(text)
        return load(path, environ={"STATE_DIRECTORY": "/var/lib/mpswatch"})

    return read


def faults(read, text):
    with pytest.raises(ConfigError) as refused:
        read(text)
    return [str(problem) for problem in refused.value.problems]


def test_patterns_are_read_and_a_desktop_is_welcome_unless_it_is_not(read):
    text = """
tenants:
  expected: [{name: embedder, match: {unit: embedder.service, user: svc}, minimum: 2}]
  welcome: [{name: monitoring, match: {command: "*exporter*"}}]
"""
    found = expectations(read(text))
    (embedder,) = found.expected
    assert (embedder.pattern.wanted, embedder.minimum) == ({"unit": "embedder.service", "user": "svc"}, 2)
    assert [welcome.name for welcome in found.welcome] == ["monitoring", "desktop"]
    assert [welcome.name for welcome in expectations(read("tenants: {desktop: false}")).welcome] == []


@pytest.mark.parametrize(
    ("expected", "welcome", "named"),
    [
        ("{name: a, match: {unit: x}}, {name: a, match: {unit: y}}", "", ("a and a", "two expectations")),
        ("{name: a, match: {unit: x}}, {name: b, match: {unit: x}, minimum: 3}", "", ("a and b", "minimum 1, 3")),
        ("{name: a, match: {unit: x.service}}", "{name: b, match: {unit: 'x*'}}", ("a and b", "welcome to be foreign")),
        ("{name: a, match: {process: Xorg}}", "", ("a and desktop", "welcome to be foreign")),
        (
            "{name: a, match: {unit: x}}",
            "{name: a, match: {unit: y}}",
            ("a and a", "both an expectation and a welcome"),
        ),
    ],
)
def test_what_cannot_both_be_meant_stops_the_start_with_both_named(expected, welcome, named, read):
    (said,) = faults(read, f"tenants: {{expected: [{expected}], welcome: [{welcome}]}}")
    assert all(words in said for words in named)


def test_an_empty_pattern_and_half_a_label_are_named_with_their_place(read):
    text = "tenants: {expected: [{name: a, match: {}}], welcome: [{name: b, match: {label: app}}], host_root: proc}"
    said = " | ".join(faults(read, text))
    for words in ("tenants.expected[0].match", "tenants.welcome[0].match.label", "tenants.host_root"):
        assert words in said


def test_metrics_can_be_summed_by_what_is_there_to_sum_by(read):
    assert read("metrics: {tenant_groups: [unit, pod, unit]}").metrics.tenant_groups == ("unit", "pod")
    assert "'pid' is none of them" in faults(read, "metrics: {tenant_groups: [pid]}")[0]


@pytest.mark.parametrize(
    ("client", "words"),
    [
        ("{runtime: docker}", "needs either an image"),
        ("{runtime: docker, image: a, container: b}", "needs either an image"),
        ("{runtime: command}", "is empty"),
        ("{image: a}", "sweep.client.runtime is process"),
        ("{runtime: docker, image: a, command: [b]}", "sweep.client.runtime is docker"),
        ("{runtime: podman, image: a, arguments: ['--memory=1g']}", "could end a client"),
        ("{runtime: podman, image: a, arguments: [-t]}", "could end a client"),
    ],
)
def test_a_runtime_that_is_not_whole_or_could_end_a_client_is_refused(client, words, read):
    assert any(words in said for said in faults(read, f"sweep: {{client: {client}}}"))


def test_a_container_is_taken_as_written(read):
    client = read(
        "sweep: {client: {runtime: docker, image: torch, uid: 1000, arguments: [--shm-size=1g]}}"
    ).sweep.client
    assert (client.runtime, client.image, client.uid, client.arguments) == ("docker", "torch", 1000, ("--shm-size=1g",))

"""What a scrape gets, read by the parsers of others: prometheus_client's two, and promtool."""

from __future__ import annotations

import gzip
import subprocess
import time
import zlib
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from mpswatch.documents import Reason
from mpswatch.latest import View
from mpswatch.metrics import TABLE, Exposition, Options, build, families
from mpswatch.metrics.table import BY_NAME
from mpswatch.metrics.text import escape, render
from mpswatch.names import printable


@pytest.fixture
def full(latest, facts):
    latest.expect([(facts.DAEMON, facts.GPU, "quick")])
    latest.set_fault_log(facts.DAEMON, None)
    latest.record(facts.refusal())
    latest.record(facts.poll())
    latest.record(facts.sweep(failed={"10": Reason.DEADLINE}))
    return latest


def samples_of(metrics):
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for metric in metrics for s in metric.samples}


def expected(view):
    return {
        (family.spec.name, tuple(sorted(zip(family.spec.labels, labels, strict=True)))): float(value)
        for family in families(view)
        for labels, value in family.samples.items()
    }


def test_both_formats_read_back_as_what_was_put_in(full):
    exposition = Exposition(full, about_process=list)
    text = exposition.render("text").decode()
    openmetrics = exposition.render("openmetrics").decode()
    assert samples_of(parse_text(text)) == expected(full.view())
    assert samples_of(parse_openmetrics(openmetrics)) == expected(full.view())
    assert openmetrics.endswith("# EOF\n")


def test_every_family_has_help_and_type_even_before_anything_is_known(latest):
    text = Exposition(latest, about_process=list).render("text").decode()
    for spec in TABLE:
        assert f"# HELP {spec.name} {spec.help}\n# TYPE {spec.name} " in text
    openmetrics = Exposition(latest, about_process=list).render("openmetrics").decode()
    assert len(list(parse_openmetrics(openmetrics))) == len(TABLE)


def test_what_this_process_costs_is_there_and_no_older_than_a_second(latest, clock):
    exposition = Exposition(latest, monotonic=clock)
    first = samples_of(parse_text(exposition.render("text").decode()))
    assert first["process_resident_memory_bytes", ()] > 0
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    clock.wait(1)
    second = samples_of(parse_openmetrics(exposition.render("openmetrics").decode()))
    assert second["process_cpu_seconds_total", ()] > first["process_cpu_seconds_total", ()]


@pytest.mark.parametrize("format_", ["text", "openmetrics"])
def test_gzip_is_one_member_that_any_reader_takes(full, format_):
    exposition = Exposition(full, about_process=list)
    for _ in range(2):
        compressed = exposition.render(format_, compressed=True)
        plain = exposition.render(format_)
        assert gzip.decompress(compressed) == plain
        reader = zlib.decompressobj(wbits=31)  # as readers that know of one member only
        assert reader.decompress(compressed) == plain
        assert reader.eof
        assert reader.unused_data == b""


def test_a_view_is_rendered_once_a_format(full, facts, monkeypatch):
    rendered = []
    monkeypatch.setattr(
        "mpswatch.metrics.exposition.render", lambda made, format_: rendered.append(format_) or render(made, format_)
    )
    exposition = Exposition(full, about_process=list)
    for _ in range(3):
        exposition.render("text")
        exposition.render("text", compressed=True)
        exposition.render("openmetrics")
    assert rendered == ["text", "openmetrics"]
    full.record(facts.poll(facts.NOON + timedelta(seconds=15)))
    exposition.render("text")
    assert rendered == ["text", "openmetrics", "text"]


def test_a_stale_poll_is_gone_from_the_very_next_scrape(full, clock):
    exposition = Exposition(full, about_process=list)
    assert b"\nmpswatch_managed_clients{" in exposition.render("text")
    clock.wait(45)
    text = exposition.render("text")
    assert b"\nmpswatch_managed_clients{" not in text
    assert b'quantity="managed_clients",reason="stale"' in text


def test_a_fault_of_ours_silences_what_it_concerns_and_is_counted(full):
    def broken(view, sheet, options):
        sheet.put("managed_clients", 99, "mps")
        raise RuntimeError("a fault of ours")

    made, faults = build(full.view(), builders=((broken, (BY_NAME["mpswatch_managed_clients"],)),), earlier_faults=2)
    by_name = {family.spec.name: family.samples for family in made}
    assert len(made) == len(TABLE)
    assert by_name["mpswatch_managed_clients"] == {}
    assert by_name["mpswatch_unknown"] == {("", "", "managed_clients", "internal_error"): 1}
    assert by_name["mpswatch_metrics_errors_total"] == {(): 3}
    assert len(faults) == 1


def test_no_view_however_broken_makes_it_raise():
    made, faults = build(object.__new__(View))
    assert len(made) == len(TABLE)
    assert faults


def test_faults_go_on_counting_from_view_to_view(full, facts):
    told = []
    exposition = Exposition(full, about_process=list, on_fault=told.append)
    full.record(facts.poll(gpus=facts.known((facts.gpu_look(conditions=facts.conditions(used=float("nan"))),))))
    text = exposition.render("text").decode()
    assert not any(line.lower().endswith("nan") for line in text.splitlines())
    assert "mpswatch_metrics_errors_total 1\n" in text
    assert "\nmpswatch_managed_clients{" in text
    full.record(facts.poll(facts.NOON + timedelta(seconds=15)))
    assert "mpswatch_metrics_errors_total 1\n" in exposition.render("text").decode()
    assert len(told) == 1


@given(st.text())
def test_no_text_breaks_out_of_its_label(value):
    line = f'x{{name="{escape(value)}"}} 1\n'
    assert line.count("\n") == 1
    (metric,) = parse_text(line)
    (sample,) = metric.samples
    assert sample.labels["name"] == printable(value)
    escape(value).encode()


@given(st.text(alphabet='\\"nx\n{}'))
def test_quotes_and_backslashes_read_back_as_they_were(value):
    (metric,) = parse_text(f'x{{name="{escape(value)}"}} 1\n')
    assert metric.samples[0].labels["name"] == value.replace("\n", "\\x0a")


def test_process_names_of_every_kind_leave_a_valid_exposition(latest, facts):
    names = [
        'a"b',
        "a\\",
        "a\nb",
        "a\x1b[31m",
        "\u202eevil",
        "",
        "-",
        "[N/A]",
        "x" * 300,
        "\udcff",
        "other",
        "<script>",
    ]
    tenants = tuple(
        facts.tenant(pid, "foreign", pid * facts.MIB, process_name=name) for pid, name in enumerate(names, 1000)
    )
    latest.record(facts.poll(tenants=facts.known(tenants)))
    found = samples_of(parse_text(Exposition(latest, about_process=list).render("text").decode()))
    by_name = {key: value for key, value in found.items() if key[0] == "mpswatch_foreign_tenant_memory_bytes"}
    assert len(by_name) == len(names)
    assert sum(by_name.values()) == found["mpswatch_foreign_memory_bytes", (("uuid", facts.GPU),)]


def test_beyond_the_largest_names_the_rest_is_other(latest, facts):
    tenants = tuple(
        facts.tenant(pid, "foreign", (pid - 999) * facts.MIB, process_name=f"p{pid}") for pid in range(1000, 1030)
    )
    latest.record(facts.poll(tenants=facts.known(tenants)))
    (family,) = (
        family
        for family in families(latest.view(), Options(tenant_names=3))
        if family.spec.name == "mpswatch_foreign_tenant_memory_bytes"
    )
    by_name = {labels[1]: value for labels, value in family.samples.items()}
    assert list(by_name) == ["p1029", "p1028", "p1027", "other"]
    assert by_name["other"] == sum(range(1, 28)) * facts.MIB


def test_pid_labels_are_off_unless_asked_for(latest, facts):
    latest.record(facts.poll())
    for options, number in ((Options(), 0), (Options(pid_labels=True), len(facts.TENANTS))):
        (family,) = (f for f in families(latest.view(), options) if f.spec.name == "mpswatch_tenant_memory_bytes")
        assert len(family.samples) == number


@pytest.mark.part("promtool")
def test_promtool_finds_nothing_but_what_the_docs_explain(full):
    text = Exposition(full).render("text")
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert checked.stderr.decode().splitlines() == [
        'mpswatch_cap_sm_count non-histogram and non-summary metrics should not have "_count" suffix'
    ]
    assert checked.stdout == b""
    assert checked.returncode == 3  # lint findings; 1 would be a parse error


class _Same:
    """The same series through prometheus_client, the floor that we are measured against."""

    def __init__(self, made):
        self._made = made

    def collect(self):
        for family in self._made:
            metric = Metric(family.spec.name, family.spec.help, "gauge")
            for labels, value in family.samples.items():
                metric.add_sample(family.spec.name, dict(zip(family.spec.labels, labels, strict=True)), value)
            yield metric


def test_a_thousand_pid_labels_cost_less_than_prometheus_clients_own_floor(latest, facts):
    tenants = tuple(facts.tenant(pid, "managed", process_name=f"python-{pid}") for pid in range(1000, 2000))
    latest.record(facts.poll(tenants=facts.known(tenants)))
    view = latest.view()
    made = families(view, Options(pid_labels=True))
    registry = CollectorRegistry()
    registry.register(_Same(made))

    def best(function):
        times = []
        for _ in range(7):
            before = time.perf_counter()
            function()
            times.append(time.perf_counter() - before)
        return min(times)

    theirs = best(lambda: generate_latest(registry))
    ours = best(lambda: render(families(view, Options(pid_labels=True)), "text"))
    # Building and rendering against their rendering alone: the noise of a busy machine stays below this margin.
    assert ours < theirs

"""Processes choose their names: none breaks out of a label, a page, a log line, the journal, or a terminal's table.

Names that are no UTF-8 come from the stub of NVML (test_nvml_faults.py): JSON cannot tell the rehearsal of them.
"""

from __future__ import annotations

import html.parser
import importlib.util
import json
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

_spec = importlib.util.spec_from_file_location("end_to_end_watched_names", Path(__file__).parent / "watched.py")
_watched = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = _watched
_spec.loader.exec_module(_watched)

NAMES = {
    "newline": 'a\n# HELP mpswatch_simulated x\nmpswatch_simulated 0\nb"} 1\n',
    "quotes": 'q"}\\",x="y\\',
    "markup": "<script>alert(1)</script><img src=x onerror=alert(2)>&amp;",
    "attribute": "\"' onmouseover='alert(3)' x=\"",
    "escape": "\x1b[2J\x1b]0;owned\x07\x9b31m[bold red]evil[/]",
    "long": "n" * 300,
    "bidi": "abc\u202egnp.exe\u2066",
    "spaces": "a\u00a0b\u3000c\u2028d\u200be\u3164f\ufeffg",
    "carriage": "fine\r\x08\x08\x00nothing to see",
    "json": '{"event": "serving", "level": "info"}',
}


@pytest.fixture(scope="module")
def stage():
    with _watched.Stage(sweep={"enabled": False}, metrics={"tenant_names": 50}) as stage:
        watched = _watched.Watched(stage.daemon)
        _watched.until(stage.well)
        for number, name in enumerate(NAMES.values()):
            stage.stack.tell("foreign", name=f"hostile{number}", memory_mib=100 + number, process_name=name)
        _watched.until(lambda: watched.value("foreign_tenants") == 1 + len(NAMES))
        _watched.until(lambda: len(watched.daemon.events("tenant_appeared")) >= len(NAMES))
        yield stage


class Tags(html.parser.HTMLParser):
    """Which attributes a page really has, and what its scripts say."""

    def __init__(self):
        super().__init__()
        self.attributes = set()
        self.scripts = ""

    def handle_starttag(self, _tag, attributes):
        self.attributes.update(attributes)

    def handle_data(self, data):
        self.scripts += data if self.cdata_elem == "script" else ""


def printable(text):
    return all(character.isprintable() for character in text)


def test_no_name_breaks_out_of_a_label(stage):
    text = stage.daemon.get("/metrics").text
    rows = [
        (sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "mpswatch_foreign_tenant_memory_bytes"
    ]
    assert len(rows) == 1 + len(NAMES)
    assert {value for _, value in rows} == {(100 + n) << 20 for n in range(len(NAMES))} | {658 << 20}
    assert {tuple(sorted(labels)) for labels, _ in rows} == {("process_name", "uuid")}
    for labels, _ in rows:
        assert printable(labels["process_name"])
        assert len(labels["process_name"]) <= 200
    assert stage.daemon.value("mpswatch_simulated") == 1


@pytest.mark.parametrize("path", ["/", "/api/v1/latest"])
def test_no_name_breaks_out_of_a_page(stage, path):
    reply = stage.daemon.get(path)
    assert "\x1b" not in reply.text
    assert "\x07" not in reply.text
    if path == "/":
        tags = Tags()
        tags.feed(reply.text)
        assert "alert" not in tags.scripts
        assert ("src", "x") not in tags.attributes
        assert not {name for name, _ in tags.attributes if name.startswith("on")}
    else:
        names = [row["process_name"] for row in reply.json()["poll"]["tenants"]["value"]]
        assert all(printable(name) for name in names if name)


def test_no_name_breaks_out_of_a_line_of_the_log_or_the_journal(stage):
    log = stage.daemon._log.read_bytes()
    journal = (stage.daemon.archive / "journal.jsonl").read_bytes()
    for whole in (log, journal):
        text = whole.decode("utf-8")
        assert printable(text.replace("\n", ""))
        for line in text.splitlines():
            assert isinstance(json.loads(line), dict)
    assert len(stage.daemon.said("serving")) == 1
    appeared = stage.daemon.events("tenant_appeared")
    assert len(appeared) == len(NAMES)
    assert all(printable(event["message"]) for event in appeared)


@pytest.mark.parametrize("columns", ["80", "200"])
def test_no_name_breaks_out_of_a_terminals_table(stage, columns):
    shown = _watched.command(stage, "poll", environment={"COLUMNS": columns})
    assert shown.returncode == 0, shown.stderr
    assert printable(shown.stdout.replace("\n", ""))
    assert "evil" in shown.stdout


def test_a_log_for_people_is_printable_too(stage):
    daemon = stage.start(
        sweep={"enabled": False}, log={"format": "text"}, archive={"directory": str(stage.folder / "other")}
    )
    try:
        _watched.until(lambda: "sweeps will" in daemon._log.read_text())  # so the first poll has been
        pid = stage.stack.add_foreign("late", 50, process_name=NAMES["escape"] + NAMES["newline"])
        _watched.until(lambda: "foreign tenant appeared" in daemon._log.read_text())
        stage.stack.remove(pid)
    finally:
        daemon.finish()
    lines = daemon._log.read_text().split("\n")
    assert all(printable(line) for line in lines)
    assert not [line for line in lines if line.startswith("mpswatch_simulated")]

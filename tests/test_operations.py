"""docs/operations.md is held to the program: its tests exist, no fault is missing, no refusal is without an answer."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from mpswatch.documents import Reason
from mpswatch.metrics.sweeps import REFUSALS

ROOT = Path(__file__).parents[1]
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
NAMED = re.compile(r"(tests/[\w/]+\.py)(?:::(\w+))?")

FAULTS = """
control program missing
control daemon absent
control daemon frozen
control daemon killed in mid-poll
control daemon restarted with another uid
control daemon answers prose with exit 0
control daemon answers half a line
control daemon answers 10 MB
control daemon answers non-UTF-8
protocol 3
server in FAULT
a fault too short to be polled
NVML missing
NVML of another version than the driver
NVML hung
GPU lost
pid garbage from NVML
nvidia-smi hung
nvidia-smi says [N/A]
nvidia-smi says [Insufficient Permissions]
MIG
pid namespace blind
process list blind
clock stepped back and forth
archive read-only
archive full
archive directory removed
archive file cut at any byte
port taken
configuration reloaded with a fault in it
client joins twice
client never joins
client joins under another pid
client answers nonsense
client answers late
client dies in each phase
""".strip().splitlines()
"""Every fault that the issue names, in its words, and a blind list."""

REFUSERS = (
    "sweep/preflight.py",
    "sweep/server_rules.py",
    "sweep/launching.py",
    "daemon/hold.py",
    "daemon/client_check.py",
)
"""The modules whose reasons are those of refusals, whatever else may be one (REFUSALS)."""


def rows(heading: str) -> dict[str, list[str]]:
    """The table below that heading: the cells of each row, by the first of them."""
    section = OPERATIONS.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    found = [
        [cell.strip() for cell in line.strip("| ").split(" | ")] for line in section.splitlines() if line[:1] == "|"
    ]
    return {cells[0].strip("`"): cells[1:] for cells in found if not cells[0].startswith(("---", "fault", "reason"))}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_of_the_issue_has_a_row_that_says_what_all_four_say_and_names_its_tests(fault):
    cells = rows("What each fault looks like")[fault]
    assert len(cells) == 5, cells  # metrics, page and document, log, sweeps, tests
    assert all(cells)
    assert NAMED.search(cells[-1])


def called_in(function: ast.FunctionDef) -> set[str]:
    """The names of what it calls or hands on to be called."""
    return {node.id for node in ast.walk(function) if isinstance(node, ast.Name)} | {
        node.func.attr for node in ast.walk(function) if isinstance(node, ast.Call) and hasattr(node.func, "attr")
    }


def marked_tests() -> dict[str, set[str]]:
    """The end-to-end tests marked with each row, as the table names them; each has all four columns asserted."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests" / "end_to_end").glob("test_*.py")):
        functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
        calls = {function.name: called_in(function) for function in functions}
        for function in functions:
            marks = [node for decorator in function.decorator_list for node in ast.walk(decorator)]
            for mark in marks:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) in {"fault", "pytest.mark.fault"}:
                    (row,) = (ast.literal_eval(argument) for argument in mark.args)
                    name = f"{path.relative_to(ROOT)}::{function.name}"
                    assert reaches(function.name, "says", calls), f"{name} does not assert what the four places say"
                    found.setdefault(row, set()).add(name)
    return found


def reaches(name: str, wanted: str, calls: dict[str, set[str]]) -> bool:
    """Whether `name` calls it, itself or by way of functions of its own file."""
    return wanted in calls.get(name, ()) or any(
        reaches(called, wanted, calls) for called in calls.get(name, ()) if called in calls and called != name
    )


def test_each_row_names_the_end_to_end_tests_that_are_marked_with_it_and_no_others():
    named = {
        fault: {f"{path}::{test}" for path, test in NAMED.findall(cells[-1]) if path.startswith("tests/end_to_end/")}
        for fault, cells in rows("What each fault looks like").items()
    }
    assert named == marked_tests()


def test_no_row_is_about_anything_else():
    assert set(rows("What each fault looks like")) == set(FAULTS)


@pytest.mark.parametrize("document", ["operations.md", "security.md"])
def test_each_test_that_is_named_exists(document):
    text = (ROOT / "docs" / document).read_text()
    for path, name in NAMED.findall(text):
        assert (ROOT / path).is_file(), path
        assert not name or f"\ndef {name}(" in (ROOT / path).read_text(), f"{path}::{name}"
    assert NAMED.search(text)


def reasons_of_refusals() -> set[str]:
    found = {str(reason) for reason in REFUSALS}
    for module in REFUSERS:
        for node in ast.walk(ast.parse((ROOT / "mpswatch" / module).read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Reason":
                found.add(Reason[node.attr].value)
    return found


def test_each_reason_that_a_sweep_can_be_refused_for_says_what_to_do():
    answers = rows("When a sweep is refused")
    assert reasons_of_refusals() <= set(answers)
    assert all(cells[-1] for cells in answers.values())
    assert set(answers) <= {reason.value for reason in Reason}


def test_each_reason_that_a_row_names_is_one():
    known = {reason.value for reason in Reason}
    for fault, cells in rows("What each fault looks like").items():
        for word in re.findall(r"reason `(\w+)`", " ".join(cells)):
            assert word in known, (fault, word)


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", OPERATIONS):
        if "://" not in target:
            assert (ROOT / "docs" / target).exists(), target

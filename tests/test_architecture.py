"""Each room knows what it may not touch (docs/architecture.md): held here, file by file, on the syntax trees."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "mpswatch"

GROUND = {"documents", "errors"}
"""What every room but the measuring client may import."""

MAY_IMPORT: dict[str, set[str]] = {
    "__init__": set(),
    "__main__": {"cli"},
    "documents": set(),
    "errors": {"documents"},
    "names": set(),
    "process": set(),
    "proc": set(),
    "identity": {"proc", "names"},
    "expectations": set(),
    "mps": {"process", "proc", "names"},
    "gpu": {"process", "proc", "names"},
    "tenants": {"names", "proc"},
    "changes": set(),
    "evidence": set(),
    "poll": {"mps", "gpu", "proc", "tenants", "identity", "expectations", "process"},
    "sweep": {"proc", "names", "process", "evidence"},
    "client": set(),
    "record": set(),
    "history": {"archive", "evidence"},
    "markup": {"evidence", "names"},
    "report": {"archive", "evidence", "history", "journal", "markup"},
    "archive": set(),
    "journal": {"archive"},
    "latest": set(),
    "metrics": {"latest", "names", "evidence"},
    "yaml_tree": set(),
    "web": {"metrics", "latest", "markup", "yaml_tree", "evidence"},
    "config": {"yaml_tree", "sweep", "expectations"},
    "logs": {"names"},
    "rehearsal": set(),
    "remote": {"archive"},
    "container_init": set(),
    "daemon": set(),  # wiring: filled in below
    "cli": set(),
}
BY_THEMSELVES = {"client", "remote", "container_init", "__main__"}
"""Programs of their own: the daemon starts them and never imports them (fsspec alone would double it)."""
MAY_IMPORT["daemon"] = set(MAY_IMPORT) - {"cli", "rehearsal"} - BY_THEMSELVES
MAY_IMPORT["cli"] = set(MAY_IMPORT) - BY_THEMSELVES

ONLY_IMPORTER = {
    "pynvml": {"gpu"},
    "subprocess": {"process", "rehearsal"},
    "torch": {"client"},
    "numpy": {"client"},
    "apscheduler": {"daemon"},
    "sqlite3": {"history"},
    "asyncio": {"daemon", "web"},
    "starlette": {"web"},
    "uvicorn": {"web"},
    "prometheus_client": {"metrics"},
    "click": {"cli"},
    "rich": {"cli"},
    "fsspec": {"remote"},
    "structlog": {"logs"},
    "yaml": {"yaml_tree"},
}

MAY_END_PROCESSES = {
    "process/ask.py": "a query program that is late, which never has a CUDA context",
    "container_init.py": "forwards what the container is told to the daemon, never to a client",
    "rehearsal": "its own services and servers, never a client that attached",
}

ENDINGS = {"kill", "killpg", "terminate", "send_signal", "pthread_kill", "pidfd_send_signal", "tgkill"}

FILES = sorted(path for path in ROOT.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    """Every module that the file imports, wherever in the file, as dotted names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                package = path.relative_to(ROOT.parent).with_suffix("").parts[: -node.level]
                module = ".".join([*package, *([node.module] if node.module else [])])
            else:
                module = node.module or ""
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return found


def test_every_room_is_in_the_table():
    assert {room_of(path) for path in FILES} <= set(MAY_IMPORT)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_imports_only_what_it_may(path):
    room = room_of(path)
    allowed = MAY_IMPORT[room] | {room} | (GROUND if room != "client" else set())
    ours = {name.split(".")[1] for name in imports_of(path) if name.startswith("mpswatch.")} - {"__version__"}
    assert ours <= allowed, f"{room} may not import {sorted(ours - allowed)}"


@pytest.mark.parametrize("room", sorted(set(MAY_IMPORT) - {"daemon", "cli"}))
def test_a_room_may_import_no_more_than_it_does(room):
    imported = {name for path in FILES if room_of(path) == room for name in imports_of(path)}
    unused = MAY_IMPORT[room] - {name.split(".")[1] for name in imported if name.startswith("mpswatch.")}
    assert not unused, f"{room} may import {sorted(unused)}, and does not: take that back"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_library_that_belongs_to_a_room_is_imported_there_alone(path):
    tops = {name.split(".")[0] for name in imports_of(path)}
    for library, rooms in ONLY_IMPORTER.items():
        assert library not in tops or room_of(path) in rooms, f"{library} belongs to {sorted(rooms)}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_ends_a_process_but_the_places_that_are_named(path):
    relative = str(path.relative_to(ROOT))
    if relative in MAY_END_PROCESSES or room_of(path) in MAY_END_PROCESSES:
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
            assert called not in ENDINGS, f"line {node.lineno}: {called}"
        assert not (isinstance(node, ast.Attribute) and node.attr == "PR_SET_PDEATHSIG"), f"line {node.lineno}"


def test_the_measuring_client_stands_alone():
    standard = sys.stdlib_module_names
    for path in (ROOT / "client").rglob("*.py"):
        tops = {name.split(".")[0] for name in imports_of(path)} - {"", "mpswatch", "client"}
        assert tops <= standard | {"torch", "numpy"}, path


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_vocabulary_is_imported_from_its_front(path):
    inside = {f"mpswatch.documents.{module.stem}" for module in (ROOT / "documents").glob("*.py")}
    assert room_of(path) == "documents" or not imports_of(path) & inside


def test_the_two_halves_never_meet():
    asking, publishing = (
        {"mps", "gpu", "proc", "tenants", "identity", "expectations", "poll", "sweep"},
        {"archive", "journal", "latest", "metrics", "web"},
    )
    for left, right in ((asking, publishing), (publishing, asking)):
        for room in left:
            assert not MAY_IMPORT[room] & right

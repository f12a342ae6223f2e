"""The list of metrics in docs/metrics.md, written from the table (python -m mpswatch.metrics.reference writes it)."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from mpswatch.documents import Reason
from mpswatch.metrics.table import (
    ABOUT_US,
    ARCHIVE,
    CAPS,
    GPUS,
    HISTORY,
    INTERFERENCE,
    MPS,
    SOURCES,
    SWEEPS,
    TENANTS,
    UNKNOWN,
    Spec,
)

SECTIONS: tuple[tuple[str, tuple[Spec, ...]], ...] = (
    ("Throughput by cap", CAPS),
    ("Each cap beside its own history", HISTORY),
    ("Sweeps", SWEEPS),
    ("Interference", INTERFERENCE),
    ("Tenants", TENANTS),
    ("MPS", MPS),
    ("GPUs", GPUS),
    ("What is unknown", UNKNOWN),
    ("Sources of a poll", SOURCES),
    ("Archive", ARCHIVE),
    ("mpswatch itself", ABOUT_US),
)

REASONS = """## Reasons

The label of that name has one of a bounded list of values (`mpswatch.documents.Reason`), the same in metrics,
documents, journal and log:

"""
BEGIN = "<!-- from mpswatch/metrics/table: begin -->\n"
END = "<!-- from mpswatch/metrics/table: end -->\n"


def markdown() -> str:
    """Write every metric (name, type, labels, meaning, when it is absent, a query), and every reason."""
    parts = []
    for title, specs in SECTIONS:
        parts.append(f"## {title}\n\n")
        parts.extend(_entry(spec) for spec in specs)
    reasons = textwrap.fill(", ".join(f"`{reason.value}`" for reason in Reason) + ".", 118)
    return "".join(parts) + REASONS + reasons + "\n\n"


def _entry(spec: Spec) -> str:
    labels = ", ".join(f"`{label}`" for label in spec.labels) or "none"
    kind = "gauge that is always 1" if spec.kind == "info" else spec.kind
    return (
        f"### {spec.name}\n\n{spec.help}\n\n"
        f"- Type: {kind}. Labels: {labels}.\n- Absent: {spec.absent}.\n- Query: `{spec.example}`\n\n"
    )


def replaced(text: str) -> str:
    """Put the list into a document, between its two marks."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + "\n" + markdown() + END + after


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(replaced(path.read_text()))

"""Families as bytes, in Prometheus' text format 0.0.4 and in OpenMetrics 1.0.0.

Written here rather than by prometheus_client's `generate_latest`, because a thousand series with pid labels must
cost less than that does (docs/measurements); the tests hold every byte of meaning to prometheus_client's parsers.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, TypeAlias

from mpswatch.metrics.sheet import Family
from mpswatch.names import printable

Format: TypeAlias = Literal["text", "openmetrics"]

CONTENT_TYPES: dict[Format, str] = {
    "text": "text/plain; version=0.0.4; charset=utf-8",
    "openmetrics": "application/openmetrics-text; version=1.0.0; charset=utf-8",
}
END: dict[Format, bytes] = {"text": b"", "openmetrics": b"# EOF\n"}


def render(families: Iterable[Family], format_: Format) -> bytes:
    """Write families, each with HELP and TYPE; without the end mark of OpenMetrics (`END`)."""
    lines: list[str] = []
    for family in families:
        spec = family.spec
        lines.append(_head(spec.name, str(spec.kind), spec.help, format_))
        if not family.samples:
            continue
        pattern = _pattern(spec.name, spec.labels)
        for labels, value in family.samples.items():
            lines.append(pattern % (*map(escape, labels), number(value)))
    return "".join(lines).encode()


def number(value: float) -> str:
    """Write a finite number so that it reads back as the same: 66, 0.25, 1e+16."""
    return str(value) if isinstance(value, int) else repr(value).removesuffix(".0")


def escape(value: str) -> str:
    """Make any text a label value: on one line, in its quotes, with nothing in it that cannot be seen."""
    if not (value.isascii() and value.isprintable()):  # asked here too: a call for each label of a scrape is felt
        value = printable(value)
    if '"' in value or "\\" in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"')
    return value


@lru_cache(maxsize=256)  # by words, whose hashes are kept: a Spec's is made anew each time
def _pattern(name: str, labels: tuple[str, ...]) -> str:
    if not labels:
        return name + " %s\n"
    return name + "{" + ",".join(f'{label}="%s"' for label in labels) + "} %s\n"


@lru_cache(maxsize=512)
def _head(name: str, kind: str, words: str, format_: Format) -> str:
    if format_ == "openmetrics":
        # There a family is called without the suffix that its kind gives to the series.
        name = name.removesuffix({"counter": "_total", "info": "_info"}.get(kind, ""))
    elif kind == "info":
        kind = "gauge"
    return f"# HELP {name} {words}\n# TYPE {name} {kind}\n"

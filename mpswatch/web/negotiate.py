"""What a scraper takes, by its Accept and Accept-Encoding headers."""

from __future__ import annotations

from mpswatch.metrics import Format

_OPENMETRICS_VERSIONS = ("", "0.0.1", "1.0.0")


def format_of(accept: str) -> Format:
    """Choose OpenMetrics where it is asked for in a version that we speak and at least as much as plain text."""
    openmetrics, text = 0.0, 0.0
    for kind, parameters in _entries(accept):
        if kind == "application/openmetrics-text" and parameters.get("version", "") in _OPENMETRICS_VERSIONS:
            openmetrics = max(openmetrics, _quality(parameters))
        elif kind == "text/plain":
            text = max(text, _quality(parameters))
    return "openmetrics" if openmetrics > 0 and openmetrics >= text else "text"


def takes_gzip(accept_encoding: str) -> bool:
    """Say whether gzip is taken: named (with a quality above 0), or covered by `*`."""
    qualities = {kind: _quality(parameters) for kind, parameters in _entries(accept_encoding)}
    return qualities.get("gzip", qualities.get("*", 0.0)) > 0


def _entries(header: str) -> list[tuple[str, dict[str, str]]]:
    entries = []
    for part in header.split(","):
        kind, *rest = (piece.strip() for piece in part.split(";"))
        pairs = (item.partition("=") for item in rest)
        parameters = {name.strip().lower(): value.strip().strip('"') for name, _, value in pairs}
        entries.append((kind.lower(), parameters))
    return entries


def _quality(parameters: dict[str, str]) -> float:
    try:
        quality = float(parameters.get("q", "1"))
    except ValueError:
        return 0.0
    return quality if 0 <= quality <= 1 else 0.0

"""Writes mpswatch's settings into the chart's values.schema.json: `python deploy/helm/settings.py` (a test compares).

From the same types that mpswatch reads its file by, so that a setting that is new there is known here.
"""

from __future__ import annotations

import json
import types
import typing
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec

from mpswatch.config import shape

Hint: TypeAlias = Any
"""A type as annotations write it: typing has no better name for it."""

SCHEMA = Path(__file__).parent / "mpswatch" / "values.schema.json"

MADE_BY_THE_CHART = {"host", "daemons", "web", "archive.directory", "tenants.host_root"}

DURATION = {"$ref": "#/definitions/duration"}
LEAVES: tuple[tuple[Any, dict[str, Any]], ...] = (
    (shape.Duration, DURATION),
    (shape.PositiveDuration, DURATION),
    (shape.Size, {"type": ["integer", "string"]}),
    (
        shape.Caps,
        {
            "type": ["string", "array"],
            "minItems": 1,
            "items": {"type": ["number", "string"], "minimum": 1, "maximum": 100},
        },
    ),
    (
        shape.QuietHours,
        {"type": "array", "items": {"type": "string", "pattern": "^[0-9]{2}:[0-9]{2}-[0-9]{2}:[0-9]{2}$"}},
    ),
    (shape.Text, {"type": "string", "minLength": 1}),
    (shape.Groups, {"type": "array", "items": {"type": "string"}}),
    (shape.Variables, {"type": "object", "additionalProperties": {"type": "string"}}),
    (shape.Count, {"type": "integer", "minimum": 0}),
    (shape.PositiveCount, {"type": "integer", "minimum": 1}),
    (shape.MatrixSize, {"type": "integer", "minimum": 16, "maximum": 65536}),
    (shape.Iterations, {"type": "integer", "minimum": 1, "maximum": 10_000_000}),
    (shape.UserId, {"type": "integer", "minimum": 0, "maximum": 4294967294}),
    (shape.Ratio, {"type": "number", "exclusiveMinimum": 0, "maximum": 1}),
    (bool, {"type": "boolean"}),
    (int, {"type": "integer"}),
    (float, {"type": "number"}),
    (str, {"type": "string"}),
)

NARROWER = {
    "archive.remote.url": {"type": "string", "pattern": "^[a-z0-9+]+://[^@]*$"},
}
"""What a rule of mpswatch's says beyond the type: no password in a URL."""


def settings(section: type[shape.Section], place: str = "") -> dict[str, Any]:
    """One section, closed: an unknown key is refused."""
    hints = typing.get_type_hints(section, include_extras=True)
    # What Config itself requires is what the chart makes, or holds it.
    required = [
        field.name for field in msgspec.structs.fields(section) if field.required and place not in ("", "archive.")
    ]
    return {
        "type": "object",
        "additionalProperties": False,
        **({"required": required} if required else {}),
        "properties": {
            name: _value(hint, f"{place}{name}")
            for name, hint in hints.items()
            if f"{place}{name}" not in MADE_BY_THE_CHART
        },
    }


def _value(hint: Hint, place: str) -> dict[str, Any]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        either = [{"type": "null"} if one is type(None) else _value(one, place) for one in typing.get_args(hint)]
        return {"anyOf": either}
    if place in NARROWER:
        return NARROWER[place]
    for leaf, schema in LEAVES:
        if hint == leaf:
            return schema
    base = typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint
    if typing.get_origin(base) is typing.Literal:
        return {"enum": list(typing.get_args(base))}
    if isinstance(base, type) and issubclass(base, shape.Section):
        return settings(base, f"{place}.")
    if typing.get_origin(base) is tuple and typing.get_args(base)[1:] == (...,):
        return {"type": "array", "items": _value(typing.get_args(base)[0], place)}
    raise TypeError(f"{place}: no schema is known here for {hint}")


def text() -> str:
    """The whole schema with the settings of this mpswatch in it."""
    schema = json.loads(SCHEMA.read_text())
    schema["properties"]["config"] = settings(shape.Config)
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(text())

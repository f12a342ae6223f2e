"""Plain data to the frozen object, leaf by leaf, so that every fault is found (msgspec stops at the first)."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec

from mpswatch.config.shape import Section
from mpswatch.config.units import UnfitError
from mpswatch.yaml_tree import Place, Problem, dotted

S = TypeVar("S", bound=Section)

Hint: TypeAlias = Any
"""A type as annotations write it, `Annotated`, unions and literals included: typing has no better name for it."""

_PLAIN = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


class Conversion:
    """One conversion: collects problems, with the line of each place where the file has one."""

    def __init__(self, lines: Mapping[Place, int]) -> None:
        self.problems: list[Problem] = []
        self._lines = lines

    def complain(self, place: Place, message: str) -> None:
        self.problems.append(Problem(dotted(place), message, self._lines.get(place)))

    def section(self, kind: type[S], raw: object, place: Place = ()) -> S | None:
        """`raw` as a section of `kind`; None when anything in it was wrong (the problems say what)."""
        hints = typing.get_type_hints(kind, include_extras=True)
        if raw is None and place:
            raw = {}  # a section that is named but empty: all its defaults
        if not isinstance(raw, dict):
            self.complain(place, f"expected keys ({', '.join(hints)}), found {_shown(raw)}")
            return None
        before = len(self.problems)
        for key in raw:
            if key not in hints:
                self._unknown_key(key, hints, place)
        values: dict[str, Any] = {}
        for field in msgspec.structs.fields(kind):
            if field.name in raw:
                values[field.name] = self._value(hints[field.name], raw[field.name], (*place, field.name))
            elif field.required:
                self.complain((*place, field.name), "is missing")
        return kind(**values) if len(self.problems) == before else None

    def _unknown_key(self, key: object, known: Mapping[str, object], place: Place) -> None:
        import difflib  # noqa: PLC0415 - for the faulty ones alone

        close = difflib.get_close_matches(str(key).replace("-", "_"), known, n=1, cutoff=0.6)
        hint = f"did you mean {close[0]}?" if close else f"known here: {', '.join(known)}"
        self.complain((*place, str(key)), f"unknown key; {hint}")

    def _value(self, hint: Hint, raw: object, place: Place) -> object:
        optional, hint = _without_none(hint)
        if raw is None and optional:
            return None
        base = typing.get_args(hint)[0] if _origin(hint) is Annotated else hint
        if isinstance(base, type) and issubclass(base, Section):
            return self.section(base, raw, place)
        item = _section_of_tuple(base)
        if item is not None:
            if not isinstance(raw, list):
                self.complain(place, f"expected a list, found {_shown(raw)}")
                return None
            return tuple(self.section(item, entry, (*place, index)) for index, entry in enumerate(raw))
        return self._leaf(hint, base, raw, place)

    def _leaf(self, hint: Hint, base: Hint, raw: object, place: Place) -> object:
        extra: dict[str, Any] = hint.__metadata__[0].extra or {} if _origin(hint) is Annotated else {}
        read, expected = extra.get("read"), extra.get("expected") or _expected(base)
        try:
            return read(raw) if read is not None else msgspec.convert(raw, hint)
        except msgspec.ValidationError:
            self.complain(place, f"expected {expected}, found {_shown(raw)}")
        except UnfitError as error:
            self.complain(place, f"expected {expected}, found {_shown(raw)}: {error}")
        return None


def _origin(hint: Hint) -> object:
    return typing.get_origin(hint)


def _without_none(hint: Hint) -> tuple[bool, Hint]:
    if _origin(hint) in (typing.Union, types.UnionType):
        rest = [argument for argument in typing.get_args(hint) if argument is not type(None)]
        return True, rest[0]
    return False, hint


def _section_of_tuple(base: Hint) -> type[Section] | None:
    if _origin(base) is tuple:
        item = typing.get_args(base)[0]
        if isinstance(item, type) and issubclass(item, Section):
            return item
    return None


def _expected(base: Hint) -> str:
    if _origin(base) is typing.Literal:
        return "one of " + ", ".join(map(str, typing.get_args(base)))
    return _PLAIN.get(base, str(base))


def _shown(raw: object) -> str:
    if isinstance(raw, dict):
        return "keys"
    if isinstance(raw, list):
        return "a list"
    text = repr(raw) if raw is not None else "nothing"
    return text if len(text) <= 60 else f"{text[:57]}..."

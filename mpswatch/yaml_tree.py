"""YAML files to plain data: bounded, duplicate keys refused, and every key's line remembered."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

import yaml

Place = tuple[str | int, ...]

MOST_BYTES = 256 << 10
"""Of a file: a reload reads it while the daemon runs, and YAML takes about a second for so many."""

MOST_PLACES = 20_000
"""Keys and items of a file, aliases followed: nine aliases of nine aliases and so on are billions in a few lines."""

_MOST_DIGITS = 1000  # Python refuses to write out 4,300 decimal ones, and hexadecimal ones come in without a limit


class Problem(NamedTuple):
    """One fault: `place` is the key's path, `line` its line in the file where there is one."""

    place: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        line = f" (line {self.line})" if self.line is not None else ""
        return f"{self.place}{line}: {self.message}" if self.place else f"{self.message}{line}"


class UnreadableError(Exception):
    """A file that is not read: the message says why, without its path."""


def read_file(path: Path, most: int = MOST_BYTES) -> bytes:
    """Give what a configuration file (or one that it names) of at most `most` bytes holds, or raise `UnreadableError`.

    Only a regular file: a pipe would have the daemon wait, and has nothing left at the next reload.
    """
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UnreadableError("is not a regular file")
            data = file.read(most + 1)
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror or error}") from error
    if len(data) > most:
        raise UnreadableError(f"is larger than {most >> 10} KiB")
    return data


def dotted(place: Place) -> str:
    """`sweep.client.python`, `daemons[0].name`."""
    path = ""
    for step in place:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else str(step)
    return path


_TYPED = tuple(f"tag:yaml.org,2002:{kind}" for kind in ("bool", "int", "float", "timestamp", "binary"))


def _unfit(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> str | None:
    """Why a value cannot be handed on: it is not what it looks like, or nobody could even show it in a message."""
    if node.tag == "tag:yaml.org,2002:int" and len(node.value) > _MOST_DIGITS:
        return f"a number of more than {_MOST_DIGITS} digits"
    try:
        node.value.encode()
    except UnicodeEncodeError:
        return "holds half of a pair of surrogates, which is no character"
    if node.tag in _TYPED:
        kind = node.tag.rpartition(":")[2]
        try:
            loader.construct_object(node)
        except (yaml.YAMLError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
            # YAML takes 2026-13-45 for a date. Other values are not repeated: one may be a password
            why = f" ({error})" if kind == "timestamp" and isinstance(error, ValueError) else ""
            return f"is no {kind}, and YAML takes it for one{why}: put a text in quotes"
    return None


class _Walk:
    """Every key and item of a file: their lines, and what is wrong with them."""

    def __init__(self, loader: yaml.SafeLoader) -> None:
        self.lines: dict[Place, int] = {}
        self.problems: list[Problem] = []
        self._loader = loader

    def through(self, node: yaml.Node, place: Place = (), above: frozenset[int] = frozenset()) -> None:
        """Go through `node`, which stands at `place` below the nodes `above`."""
        if len(self.lines) > MOST_PLACES:
            return
        if id(node) in above:  # an alias to a node that holds it: safe_load would build an endless object
            self._complain(place, "an alias to something that holds it", node)
            return
        above |= {id(node)}
        if isinstance(node, yaml.ScalarNode):
            fault = _unfit(self._loader, node)
            if fault is not None:
                self._complain(place, fault, node)
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                self._entry(key, value, place, above)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self.lines[(*place, index)] = item.start_mark.line + 1
                self.through(item, (*place, index), above)

    def _entry(self, key: yaml.Node, value: yaml.Node, place: Place, above: frozenset[int]) -> None:
        if not isinstance(key, yaml.ScalarNode):
            self._complain(place, "has a list or a map as a key: a key is a text", key)
            return
        below = (*place, str(key.value))
        if below in self.lines:
            self._complain(below, f"is there twice, first on line {self.lines[below]}", key)
            return
        self.lines[below] = key.start_mark.line + 1
        self.through(key, below, above)
        self.through(value, below, above)

    def _complain(self, place: Place, message: str, node: yaml.Node) -> None:
        self.problems.append(Problem(dotted(place), message, node.start_mark.line + 1))


def read_yaml(data: bytes) -> tuple[Any, dict[Place, int], list[Problem]]:
    """The plain data in `data`, the line of every key, and what is wrong with it as YAML."""
    lines: dict[Place, int] = {}
    try:
        loader = yaml.SafeLoader(data)
        walk = _Walk(loader)
        lines = walk.lines
        try:
            node = loader.get_single_node()
            if node is None:
                return {}, {}, []
            walk.through(node)
            if len(lines) > MOST_PLACES:
                walk.problems = [Problem("", f"holds more than {MOST_PLACES} keys and items, aliases followed")]
            if walk.problems:
                return None, lines, walk.problems
            return loader.construct_document(node), lines, []
        except RecursionError:
            return None, lines, [Problem("", "is nested too deeply", loader.line + 1)]
        finally:
            loader.dispose()
    except (
        AttributeError,
        LookupError,
        TypeError,
    ):  # a tag that its value does not fit: !!bool maybe, !!timestamp soon
        return None, lines, [Problem("", "not YAML: a value does not fit its tag")]
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        return None, lines, [Problem("", f"not YAML: {what}", mark.line + 1 if mark is not None else None)]

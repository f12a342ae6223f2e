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


def _unfit(node: yaml.ScalarNode) -> str | None:
    """Why a value cannot be handed on: nobody could even show it in a message."""
    if node.tag == "tag:yaml.org,2002:int" and len(node.value) > _MOST_DIGITS:
        return f"a number of more than {_MOST_DIGITS} digits"
    try:
        node.value.encode()
    except UnicodeEncodeError:
        return "holds half of a pair of surrogates, which is no character"
    return None


def _walk(node: yaml.Node, place: Place, lines: dict[Place, int], problems: list[Problem], above: set[int]) -> None:
    if len(lines) > MOST_PLACES:
        return
    if id(node) in above:  # an alias to a node that holds it: safe_load would build an endless object
        problems.append(Problem(dotted(place), "an alias to something that holds it", node.start_mark.line + 1))
        return
    above = above | {id(node)}
    if isinstance(node, yaml.ScalarNode):
        fault = _unfit(node)
        if fault is not None:
            problems.append(Problem(dotted(place), fault, node.start_mark.line + 1))
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                problems.append(Problem(dotted(place), "has a list or a map as a key: a key is a text", line))
                continue
            name = str(key.value)
            below = (*place, name)
            if below in lines:
                problems.append(Problem(dotted(below), f"is there twice, first on line {lines[below]}", line))
                continue
            lines[below] = line
            _walk(key, below, lines, problems, above)
            _walk(value, below, lines, problems, above)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[(*place, index)] = item.start_mark.line + 1
            _walk(item, (*place, index), lines, problems, above)


def read_yaml(data: bytes) -> tuple[Any, dict[Place, int], list[Problem]]:
    """The plain data in `data`, the line of every key, and what is wrong with it as YAML."""
    lines: dict[Place, int] = {}
    problems: list[Problem] = []
    try:
        loader = yaml.SafeLoader(data)
        try:
            node = loader.get_single_node()
            if node is None:
                return {}, {}, []
            _walk(node, (), lines, problems, set())
            if len(lines) > MOST_PLACES:
                problems = [Problem("", f"holds more than {MOST_PLACES} keys and items, aliases followed")]
            if problems:
                return None, lines, problems
            return loader.construct_document(node), lines, []
        finally:
            loader.dispose()
    except (
        AttributeError,
        LookupError,
        TypeError,
    ):  # a tag that its value does not fit: !!bool maybe, !!timestamp soon
        return None, lines, [Problem("", "not YAML: a value does not fit its tag")]
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        return None, lines, [Problem("", f"not YAML: {what}", mark.line + 1 if mark is not None else None)]

"""Text under somebody else's control, made fit to be shown: in a document, a label, a page, a log line, a terminal.

A process chooses its own name: newlines, escape sequences, 300 characters and invalid UTF-8 all come
through from a real driver. What leaves this module is one line on which everything that there is can be seen.
"""

from __future__ import annotations

import re

NAME_LIMIT = 200
"""Longest name shown, in characters."""

_HOME = re.compile(r"(?:(?<=^)|(?<=[\s=:,;'\"(]))(?:/var/home/[^/\s]+|/home/[^/\s]+|/root)(?=$|[/\s:,;'\")])")

_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Letters, marks and symbols without a shape of their own (fillers, selectors, the empty braille cell)."""


def printable(text: str | bytes) -> str:
    """`text` on one line, with whatever cannot be seen written as an escape (`\\x1b`, `\\u202e`, `\\xff`).

    That is all but letters, marks, digits, punctuation, symbols and the plain space: no control, no line break, nothing
    that turns text around or has no width, no other kind of space, nothing unassigned, no half of a pair.
    """
    decoded = text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else text
    if decoded.isascii() and decoded.isprintable():
        return decoded
    return "".join(
        character if character.isprintable() and not _BLANK.match(character) else _escape(character)
        for character in decoded
    )


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def clip(text: str, limit: int = NAME_LIMIT) -> str:
    """At most `limit` characters; what was cut shows as `…`."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def home(text: str) -> str:
    """Home directories as `~`: whose they are is not for everybody who reads a metric."""
    return _HOME.sub("~", text) if "/home/" in text or "/root" in text else text


def shown(name: str | bytes) -> str:
    """A process's name as every document holds it: printable, homes as `~`, clipped."""
    return clip(home(printable(name)))

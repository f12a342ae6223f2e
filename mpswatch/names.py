"""Names under somebody else's control, made fit to be shown.

A process chooses its own name: newlines, escape sequences, 300 characters and invalid UTF-8 all come
through from a real driver. What leaves this module is one printable line.
"""

from __future__ import annotations

import re
import unicodedata

NAME_LIMIT = 200
"""Longest name shown, in characters."""

_HOME = re.compile(r"(?:(?<=^)|(?<=[\s=:,;'\"(]))(?:/var/home/[^/\s]+|/home/[^/\s]+|/root)(?=$|[/\s:,;'\")])")

# Cc controls, Cf formats (among them the marks that turn text around), Cs halves of pairs, Zl and Zp line breaks
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def printable(text: str | bytes) -> str:
    """`text` on one line, with whatever is not printable written as an escape (`\\x1b`, `\\u202e`, `\\xff`)."""
    decoded = text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else text
    if decoded.isascii() and decoded.isprintable():
        return decoded
    return "".join(_visible(character) for character in decoded)


def _visible(character: str) -> str:
    if unicodedata.category(character) not in _INVISIBLE:
        return character
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

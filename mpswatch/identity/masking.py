"""Command lines fit to be kept: secrets masked, homes as `~`, printable, clipped. Pure.

No rule finds every secret, so command lines stay behind the password, and out of metrics. Masked is the value of
whatever is named like a secret (`--api-key X`, `TOKEN=X`, `?sig=X`), the user part of a URL, what follows Bearer or
Basic, and words in the form of well-known keys. A short option (`-p X`) names nothing: what follows it stays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from mpswatch.names import clip, home, printable

MASK = "***"
LIMIT = 300
"""Longest command line kept, in characters."""

_LONGEST_WORD = 4096

_SECRET = frozenset({
    "password", "passwords", "passwd", "passphrase", "pass", "pwd", "pw", "secret", "secrets", "token", "apikey", "jwt",
    "auth", "authorization", "bearer", "cookie", "credential", "credentials", "creds", "dsn", "pat", "signature", "sig",
})  # fmt: skip
_SECRET_PAIRS = frozenset(
    {(kind, "key") for kind in ("api", "access", "private", "secret", "signing", "account", "encryption", "license")}
    | {("connection", "string"), ("conn", "str"), ("access", "id"), ("webhook", "url")}
)
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_NAMED = re.compile(
    r"(?P<name>[A-Za-z_][\w.-]{0,80})(?P<sign>[\"']?\s*[=:]\s*)(?P<value>\"[^\"]*\"|'[^']*'|[^\s&;,\"']+)"
)
_USER = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^/\s@]+@")
_SCHEME = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")
_KEYS = re.compile(
    r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{20,}|sk-[\w-]{16,}"
    r"|AKIA[A-Z0-9]{16}|ASIA[A-Z0-9]{16}|AIza[\w-]{30,}|xox[abprs]-[\w-]{10,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{20,}"
    r"|dckr_pat_[\w-]{20,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)
_LONG = re.compile(r"(?<![\w/.-])(?=[A-Za-z0-9+=_]*\d)(?=[A-Za-z0-9+=_]*[A-Za-z])[A-Za-z0-9+=_]{40,}(?![\w/.-])")


def command_line(arguments: Sequence[str]) -> str:
    """`arguments` as one line that may be kept."""
    words: list[str] = []
    length = 0
    hide_next = False
    for argument in arguments:
        if length > LIMIT:
            break  # what follows would be clipped anyway
        value = hide_next and not argument.startswith("--")
        word = MASK if value else masked(argument[:_LONGEST_WORD])
        hide_next = argument.startswith("-") and "=" not in argument and _is_secret(argument.lstrip("-"))
        word = home(printable(word))
        words.append(f"'{word}'" if not word or " " in word else word)
        length += len(words[-1]) + 1
    return clip(" ".join(words), LIMIT)


def masked(text: str) -> str:
    """`text` with what looks like a secret replaced by `***`."""
    text = _USER.sub(rf"\g<scheme>{MASK}@", text)
    text = _SCHEME.sub(rf"\1 {MASK}", text)
    text = _NAMED.sub(_hide, text)
    text = _KEYS.sub(MASK, text)
    return _LONG.sub(MASK, text)


def _hide(match: re.Match[str]) -> str:
    if not _is_secret(match["name"]) or match["value"].startswith("//"):
        return match[0]
    if match["value"].lower() in {"bearer", "basic", MASK}:
        return match[0]  # its secret follows, and is masked by now
    return f"{match['name']}{match['sign']}{MASK}"


def _is_secret(name: str) -> bool:
    """Whether that is the name of a secret. `--max-tokens` and `--tokenizer` of every language model are not."""
    parts = [part.lower() for part in _PARTS.findall(name)]
    return bool(_SECRET.intersection(parts)) or not _SECRET_PAIRS.isdisjoint(pairwise(parts))

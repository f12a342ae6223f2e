"""What the daemon may ask of the launcher, checked: anything else is answered with a reason and nothing is started."""

from __future__ import annotations

import json
from typing import Any

from .backend import KINDS, Cell
from .sustained import Request

MOST = {"size": 65536, "iters": 10_000_000, "warm_up": 100_000, "samples": 100, "passes": 50}
"""Above these a request is a mistake; 100 samples still fit into one line."""

DEADLINE_MOST = 86400.0

DURATION_MOST = 600.0
"""Seconds that a phase of a cell may be asked to last; its deadline ends it all the same."""

DTYPES = ("fp16", "bf16", "fp32", "float32")
WORDS = ("cell", "go", "enough", "bye", "end")


class Nonsense(Exception):  # noqa: N818 -- the reason's own name
    """A line that is no request. `reason` is a value of mpswatch's Reason; `order` and `cap` as far as known."""

    def __init__(self, detail: str, reason: str = "client_nonsense", cell: dict[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.reason = reason
        self.cell = cell or {}


def read(line: bytes) -> tuple[str, Cell | int | None]:
    """One line of the daemon's: its word, and the cell where the word is `cell`. Raises Nonsense.

    The other words are for one child where they carry its order (`{"go": 3}`), else for every child (`{"go": true}`).
    """
    try:
        message = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise Nonsense(f"not JSON: {error}") from error
    if not isinstance(message, dict) or len(message) != 1:
        raise Nonsense("not an object with one key")
    ((word, body),) = message.items()
    if word not in WORDS:
        raise Nonsense(f"{word!r} is not a request")
    if word != "cell":
        return word, body if isinstance(body, int) and not isinstance(body, bool) else None
    if not isinstance(body, dict):
        raise Nonsense("cell is not an object")
    return word, _cell(body)


def _cell(body: dict[str, Any]) -> Cell:
    cap = body.get("cap")
    # MPS ignores 0, -5, 101 and abc without a word and runs the client on the whole device (mps-facts 4)
    if not isinstance(cap, str) or not _number(cap) or not 0 < float(cap) <= 100:
        raise Nonsense(f"cap {cap!r} is not a number in (0, 100]", "cap_out_of_range", body)
    dtype, fail_in = body.get("dtype", "fp16"), body.get("fail_in")
    if dtype not in DTYPES:
        raise Nonsense("dtype {!r} is none of {}".format(dtype, ", ".join(DTYPES)), cell=body)
    deadline = body.get("deadline")
    if isinstance(deadline, bool) or not isinstance(deadline, (int, float)) or not 0 < deadline <= DEADLINE_MOST:
        raise Nonsense(f"deadline {deadline!r} is not a number of seconds up to a day", cell=body)
    if fail_in is not None and not isinstance(fail_in, str):
        raise Nonsense("fail_in is not a text", cell=body)
    kind = body.get("kind", "matmul")
    if kind not in KINDS:
        raise Nonsense("kind {!r} is none of {}".format(kind, ", ".join(KINDS)), cell=body)
    sustained = _sustained(body)
    passes = _integer(body, "passes", 0 if sustained is not None else 1, MOST["passes"], 1)
    return Cell(
        order=_integer(body, "order", 0, 1_000_000),
        cap=cap,
        size=_integer(body, "size", 16, MOST["size"]),
        iters=_integer(body, "iters", 1, MOST["iters"]),
        dtype="fp32" if dtype == "float32" else dtype,
        seed=_integer(body, "seed", 0, (1 << 63) - 1),
        deadline=float(deadline),
        warm_up=_integer(body, "warm_up", 0, MOST["warm_up"], 3),
        samples=_integer(body, "samples", 0, MOST["samples"], 0),
        fail_in=fail_in,
        kind=kind,
        passes=passes,
        rest=_seconds(body, body, "rest", 0.0),
        sustained=sustained,
        beside=None if body.get("beside") is None else _integer(body, "beside", 0, 1_000_000),
    )


def _sustained(body: dict[str, Any]) -> Request | None:
    asked = body.get("sustained")
    if asked is None:
        return None
    if not isinstance(asked, dict):
        raise Nonsense("sustained is not an object", cell=body)
    default = Request(seconds=0.3)
    numbers = {
        name: _seconds(body, asked, name, getattr(default, name))
        for name in ("seconds", "block", "settle_least", "settle_most", "tolerance")
    }
    return Request(open_ended=asked.get("open_ended") is True, **numbers)


def _seconds(cell: dict[str, Any], body: dict[str, Any], name: str, default: float) -> float:
    value = body.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= DURATION_MOST:
        raise Nonsense(f"{name} {value!r} is not a number from 0 to {DURATION_MOST:g}", cell=cell)
    return float(value)


def _number(text: str) -> bool:
    whole, _, part = text.partition(".")
    return whole.isdecimal() and text.isascii() and len(text) < 20 and (part.isdecimal() or "." not in text)


def _integer(body: dict[str, Any], name: str, least: int, most: int, default: int | None = None) -> int:
    value = body.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Nonsense(f"{name} {value!r} is not an integer from {least} to {most}", cell=body)
    return value

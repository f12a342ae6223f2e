"""What the daemon may ask of the launcher, checked: anything else is answered with a reason and nothing is started."""

from __future__ import annotations

import json
from typing import Any

from .backend import Cell

MOST = {"size": 65536, "iters": 10_000_000, "warm_up": 100_000, "samples": 100}
"""Above these a request is a mistake; 100 samples still fit into one line."""

DEADLINE_MOST = 86400.0

DTYPES = ("fp16", "bf16", "fp32", "float32")
WORDS = ("cell", "go", "bye", "end")


class Nonsense(Exception):  # noqa: N818 -- the reason's own name
    """A line that is no request. `reason` is a value of mpswatch's Reason; `order` and `cap` as far as known."""

    def __init__(self, detail: str, reason: str = "client_nonsense", cell: dict[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.reason = reason
        self.cell = cell or {}


def read(line: bytes) -> tuple[str, Cell | None]:
    """One line of the daemon's: its word, and the cell where the word is `cell`. Raises Nonsense."""
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
        return word, None
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
    )


def _number(text: str) -> bool:
    whole, _, part = text.partition(".")
    return whole.isdecimal() and text.isascii() and len(text) < 20 and (part.isdecimal() or "." not in text)


def _integer(body: dict[str, Any], name: str, least: int, most: int, default: int | None = None) -> int:
    value = body.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Nonsense(f"{name} {value!r} is not an integer from {least} to {most}", cell=body)
    return value

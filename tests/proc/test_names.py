from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpswatch.names import NAME_LIMIT, clip, home, printable, shown


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("/usr/bin/python3", "/usr/bin/python3"),
        ("a\nb\tc\r", r"a\x0ab\x09c\x0d"),
        ("\x1b[2J\x1b]0;owned\x07", r"\x1b[2J\x1b]0;owned\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("abc\u202egnp.exe", r"abc\u202egnp.exe"),
        ("a\u2028b\u200bc", r"a\u2028b\u200bc"),
        ("Größe 模型", "Größe 模型"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
        (b"\xff\xfe-service", r"\xff\xfe-service"),
        ("", ""),
        ("-", "-"),
        ("[N/A]", "[N/A]"),
        ("a,b", "a,b"),
    ],
)
def test_what_is_not_printable_becomes_visible(name, seen):
    assert printable(name) == seen


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("/home/jane/engines/llama-server", "~/engines/llama-server"),
        ("/home/jane", "~"),
        ("/root/.venv/bin/python", "~/.venv/bin/python"),
        ("/var/home/jane/x", "~/x"),
        ("python --model=/home/jane/m.gguf", "python --model=~/m.gguf"),
        ("python /home/jane/a /home/joe/b", "python ~/a ~/b"),
        ("/rooted/x", "/rooted/x"),
        ("/srv/home/jane/x", "/srv/home/jane/x"),
        ("/homes/jane", "/homes/jane"),
    ],
)
def test_homes_show_as_a_tilde(name, seen):
    assert home(name) == seen


def test_a_long_name_is_clipped_and_says_so():
    assert clip("x" * 300) == "x" * (NAME_LIMIT - 1) + "…"
    assert clip("x" * NAME_LIMIT) == "x" * NAME_LIMIT


@given(st.one_of(st.text(), st.binary()))
def test_every_name_comes_out_as_one_short_printable_line(name):
    seen = shown(name)
    assert len(seen) <= NAME_LIMIT
    assert len(seen.splitlines()) <= 1
    assert all(ord(character) >= 0x20 and not 0x7F <= ord(character) < 0xA0 for character in seen)
    seen.encode("utf-8")

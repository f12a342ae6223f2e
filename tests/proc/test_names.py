from __future__ import annotations

import unicodedata

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
        ("a b", "a b"),
        ("a\xa0b\u3000c\u1680d\u2009e", r"a\xa0b\u3000c\u1680d\u2009e"),
        ("a\x85b\x0bc\x0cd\u2029e", r"a\x85b\x0bc\x0cd\u2029e"),
        ("\u2066a\u2069\u200f\u061c", r"\u2066a\u2069\u200f\u061c"),
        ("so\xadft\ufeff\u200d\u2060", r"so\xadft\ufeff\u200d\u2060"),
        ("fill\u3164\u115f\uffa0\u2800", r"fill\u3164\u115f\uffa0\u2800"),
        ("a\ufe0f\U000e0100", r"a\ufe0f\U000e0100"),
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


def test_of_all_characters_none_comes_out_that_moves_anything_or_is_nothing_to_see():
    let_through = {chr(code) for code in range(0x110000) if printable(chr(code)) == chr(code)}
    assert {unicodedata.category(character)[0] for character in let_through} == set("LMNPSZ")
    assert {character for character in let_through if character.isspace()} == {" "}
    assert not {character for character in let_through if len(f"a{character}b".splitlines()) > 1}
    turning = {"R", "AL", "NSM", "L", "EN", "AN", "ES", "CS", "ET", "ON", "WS", ""}  # text's own directions, no control
    assert {unicodedata.bidirectional(character) for character in let_through} <= turning
    assert all(printable(chr(code)).isascii() for code in range(0x110000) if chr(code) not in let_through)


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
    assert printable(seen) == seen
    seen.encode("utf-8")

"""Command lines without their secrets."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpswatch.identity.masking import LIMIT, command_line

HIDDEN = "hunter2-secret"


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", "--password", HIDDEN),
        ("serve", f"--password={HIDDEN}"),
        ("serve", "--api-key", HIDDEN),
        ("serve", "--apiKey", HIDDEN),
        ("serve", f"--hf_token={HIDDEN}"),
        ("serve", "-token", HIDDEN),
        ("env", f"AWS_SECRET_ACCESS_KEY={HIDDEN}", "serve"),
        ("serve", f"postgresql://app:{HIDDEN}@db/x"),
        ("serve", "--url", f"https://{HIDDEN}@host/path"),
        ("curl", "-H", f"Authorization: Bearer {HIDDEN}"),
        ("curl", "-H", f"X-Api-Key: {HIDDEN}"),
        ("curl", f"https://host/path?a=b&token={HIDDEN}&c=d"),
        ("sh", "-c", f"export DB_PASSWORD='{HIDDEN}'; exec serve"),
        ("sh", "-c", f"TOKEN={HIDDEN} serve --fast"),
        ("serve", '{"password": "' + HIDDEN + '"}'),
    ],
)
def test_what_is_named_like_a_secret_is_masked(arguments):
    line = command_line(arguments)
    assert HIDDEN not in line
    assert "***" in line


@pytest.mark.parametrize(
    "secret",
    [
        "ghp_" + "a1B2" * 9,
        "hf_" + "Zx9" * 11,
        "sk-proj-" + "a1b2" * 8,
        "AKIA" + "ABCD1234" * 2,
        "glpat-" + "a1b2" * 5,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcDEF123",
        "a1B2c3D4" * 6,
    ],
)
def test_what_looks_like_a_key_is_masked_whatever_it_is_called(secret):
    assert secret not in command_line(("serve", "--thing", secret))


@pytest.mark.parametrize(
    "argument",
    [
        "--max-tokens=4096",
        "--tokenizer=meta-llama/Llama-3.1-8B-Instruct",
        "--model=/srv/models/Qwen2.5-Coder-32B-Instruct-AWQ",
        "--device=GPU-5bfbc2e0-9a68-4a3c-8a0a-3f6a3c1f9a11",
        "--author=erin",
        "--passes=3",
        "--host=0.0.0.0:8000",
        "https://host/path?page=2",
        "http://host:8000/v1",
    ],
)
def test_what_is_no_secret_stays(argument):
    assert command_line(("serve", argument)) == f"serve {argument}"


def test_homes_are_a_tilde_and_the_unprintable_an_escape():
    assert command_line(("/home/erin/bin/x", "--out=/root/y", "a\nb\x1b[2J")) == "~/bin/x --out=~/y a\\x0ab\\x1b[2J"


def test_a_long_line_is_clipped_and_words_with_blanks_are_quoted():
    line = command_line(("serve", "two words", *["argument"] * 5000))
    assert line.startswith("serve 'two words' argument")
    assert len(line) == LIMIT
    assert line.endswith("…")


@given(st.lists(st.text(max_size=60), max_size=12))
def test_any_arguments_become_one_printable_line(arguments):
    line = command_line(arguments)
    assert len(line) <= LIMIT
    assert "\n" not in line
    assert not {unicodedata.category(character) for character in line} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


def test_an_argument_of_a_megabyte_is_no_work():
    before = time.process_time()
    command_line(("serve", "a=" * 500_000, "x" * 1_000_000))
    assert time.process_time() - before < 0.5

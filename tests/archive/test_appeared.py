"""What another process archives is told once: whenever it began, whatever clocks do, whoever removes what."""

from __future__ import annotations

import os
import random

import pytest

from mpswatch.archive.appeared import Appeared


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


@pytest.fixture
def appeared(directory):
    return Appeared(directory, lambda: sorted(path.name for path in directory.iterdir()))


def test_what_is_there_at_the_first_look_is_told_and_never_again(directory, appeared):
    for name in ("b", "a"):
        (directory / name).touch()
    assert appeared.look() == ["a", "b"]
    assert not appeared.look()


def test_each_name_is_told_once_however_they_come(directory, appeared):
    chance, names, told = random.Random(7), [f"{number:03}" for number in range(200)], []
    chance.shuffle(names)
    while names:
        for _ in range(min(len(names), chance.randrange(4))):
            (directory / names.pop()).touch()
        told += appeared.look() or []
    assert sorted(told) == [f"{number:03}" for number in range(200)]


def test_a_file_that_comes_within_the_tick_of_the_last_look_is_told(directory, appeared):
    (directory / "a").touch()
    stamp = directory.stat().st_mtime_ns
    assert appeared.look() == ["a"]
    (directory / "b").touch()
    os.utime(directory, ns=(stamp, stamp))  # as a file system with coarse times has it
    assert appeared.look() == ["b"]


def test_a_directory_that_has_not_changed_for_long_is_not_listed_again(directory):
    listed = []
    appeared = Appeared(directory, lambda: listed.append("again") or [])
    os.utime(directory, (1_000_000, 1_000_000))
    assert [appeared.look(), appeared.look(), appeared.look()] == [[], None, None]
    assert listed == ["again"]


def test_what_was_there_before_a_directory_was_gone_is_no_news_when_it_is_back(directory, appeared):
    (directory / "a").touch()
    appeared.look()
    directory.rename(directory.with_name("elsewhere"))
    with pytest.raises(FileNotFoundError):
        appeared.look()
    directory.with_name("elsewhere").rename(directory)
    (directory / "b").touch()
    assert appeared.look() == ["b"]


def test_a_directory_that_is_back_unchanged_is_looked_through_all_the_same(directory, appeared):
    os.utime(directory, (1_000_000, 1_000_000))
    appeared.look()
    assert appeared.look() is None
    directory.rename(directory.with_name("elsewhere"))
    with pytest.raises(FileNotFoundError):
        appeared.look()
    directory.with_name("elsewhere").rename(directory)
    assert appeared.look() == []  # not None: whoever measures its size does so again


def test_a_name_that_went_and_came_again_is_news(directory, appeared):
    (directory / "a").touch()
    appeared.look()
    (directory / "a").unlink()
    assert appeared.look() == []
    (directory / "a").touch()
    assert appeared.look() == ["a"]

"""A rehearsal never leaks into a real stack, and never removes what it did not make."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from mpswatch.rehearsal import RehearsalError, Stack


@pytest.mark.parametrize("directory", ["/tmp/nvidia-mps", "/tmp/nvidia-mps/deeper", "/var/log/nvidia-mps"])
def test_the_places_of_a_real_stack_are_refused(directory):
    with pytest.raises(RehearsalError, match="real MPS stack"):
        Stack(directory).start()


def test_a_real_pipe_directory_elsewhere_is_refused_and_left_alone(stack_directory):
    stack_directory.mkdir()
    with socket.socket(socket.AF_UNIX) as control:
        control.bind(str(stack_directory / "control"))
        (stack_directory / "nvidia-cuda-mps-control.pid").write_text("448")
        with pytest.raises(RehearsalError, match="files that no rehearsal made"):
            Stack(stack_directory).start()
    assert sorted(path.name for path in stack_directory.iterdir()) == ["control", "nvidia-cuda-mps-control.pid"]


def test_any_other_file_is_a_reason_to_refuse(stack_directory):
    stack_directory.mkdir()
    (stack_directory / "thesis.tex").touch()
    with pytest.raises(RehearsalError, match="files that no rehearsal made"):
        Stack(stack_directory).start()
    assert (stack_directory / "thesis.tex").exists()


def test_two_rehearsals_do_not_share_a_directory(stack):
    stack.add_service("llm")
    with pytest.raises(RehearsalError, match="a rehearsal is running"):
        Stack(stack.directory).start()
    assert stack.status()["daemons"]["default"]["up"]


def test_an_empty_directory_is_taken(stack_directory):
    stack_directory.mkdir()
    with Stack(stack_directory) as stack:
        assert stack.server_pid is None


def test_a_path_too_long_for_sockets_is_refused_in_words(stack_directory):
    with pytest.raises(RehearsalError, match="too long a path for sockets"):
        Stack(stack_directory / ("x" * 100)).start()


def test_a_stack_that_is_not_there_says_so(stack_directory):
    with pytest.raises(RehearsalError, match="no rehearsal answers"):
        Stack(stack_directory).status()


def test_the_default_of_the_control_program_is_its_own_stack(stack, ask):
    text = Path(stack.control_program).read_text()
    assert "/tmp/nvidia-mps" not in text
    assert str(stack.pipe_directory) in text


def test_the_mark_is_there_before_and_after_the_control_socket(stack, ask, eventually):
    # is_rehearsal looks for the socket alone: a `control` of ours without it would pass for a real daemon's
    assert (stack.pipe_directory / "rehearsal").is_socket()
    stack.tell("die")
    assert (stack.pipe_directory / "rehearsal").is_socket()
    stack.tell("start")
    assert (stack.pipe_directory / "rehearsal").is_socket()

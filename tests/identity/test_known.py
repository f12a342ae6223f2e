"""Identities are read once a process, and a number that is used again is somebody else."""

from __future__ import annotations

from datetime import UTC, datetime

from mpswatch.documents import Reason


def test_all_of_it_for_an_ordinary_process(add, who, tmp_path):
    (tmp_path / "host/etc").mkdir(parents=True)
    (tmp_path / "host/etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nsvc:x:990:990::/srv/svc:/bin/false\n")
    add(1, command=b"systemd")
    add(
        42,
        b"0::/system.slice/embedder.service\n",
        uid=990,
        ticks=50_000,
        arguments=(b"/srv/svc/bin/python3", b"main.py", b"--api-key", b"hunter2"),
        executable="/home/svc/bin/python3.12",
    )
    identity = who(42)[42].identity
    assert identity.executable == "~/bin/python3.12"
    assert identity.command_line == "/srv/svc/bin/python3 main.py --api-key ***"
    assert (identity.user, identity.unit, identity.parent_pid, identity.parent_name) == (
        "svc", "embedder.service", 1, "systemd",
    )  # fmt: skip
    assert identity.started_at == datetime.fromtimestamp(1_700_000_500, UTC)
    assert identity.unknown == {}


def test_a_user_that_the_passwd_file_does_not_have_is_unknown_with_a_reason(add, who):
    add(42, uid=70000)
    identity = who(42)[42].identity
    assert identity.user is None
    assert identity.unknown["user"] is Reason.NOT_RECORDED


def test_a_process_is_read_once_while_it_lives(add, who, proc):
    folder = add(42, b"0::/system.slice/embedder.service\n", ticks=5000)  # 950 s old
    first = who(42)[42]
    (folder / "cgroup").write_bytes(b"0::/system.slice/other.service\n")
    assert who(42)[42] is first


def test_a_number_that_is_used_again_is_somebody_else(add, who, proc):
    folder = add(42, b"0::/system.slice/embedder.service\n", ticks=5000)
    assert who(42)[42].identity.unit == "embedder.service"
    (folder / "stat").write_bytes((folder / "stat").read_bytes().replace(b" 5000 ", b" 6000 "))
    (folder / "cgroup").write_bytes(b"0::/system.slice/other.service\n")
    again = who(42)[42]
    assert again.identity.unit == "other.service"
    assert again.start_ticks == 6000


def test_a_young_process_that_enters_its_unit_is_read_again(add, who):
    folder = add(42, b"0::/init.scope\n", ticks=99_000)  # 10 s old
    first = who(42)[42]
    assert first.identity.unit == "init.scope"
    assert who(42)[42] is first
    (folder / "cgroup").write_bytes(b"0::/system.slice/embedder.service\n")
    assert who(42)[42].identity.unit == "embedder.service"


def test_a_process_that_becomes_another_program_is_read_again_at_any_age(add, who):
    folder = add(42, command=b"sh", arguments=(b"sh", b"start.sh"), ticks=5000)
    assert who(42)[42].identity.command_line == "sh start.sh"
    (folder / "stat").write_bytes((folder / "stat").read_bytes().replace(b"(sh)", b"(python3)"))
    (folder / "cmdline").write_bytes(b"python3\0serve.py\0")
    assert who(42)[42].identity.command_line == "python3 serve.py"


def test_whoever_has_gone_is_left_out_and_forgotten(add, who):
    import shutil

    add(42)
    folder = add(43)
    assert who(42, 43).keys() == {42, 43}
    shutil.rmtree(folder)
    assert who(42, 43).keys() == {42}


def test_a_zombie_has_no_command_line_and_says_so(add, who):
    add(42, arguments=(), executable=None, state="Z")
    identity = who(42)[42].identity
    assert identity.command_line is None
    assert identity.unknown["command_line"] is Reason.NOT_RECORDED


def test_a_cgroup_that_cannot_be_read_is_unknown_not_absent(add, who):
    folder = add(42)
    (folder / "cgroup").unlink()
    unknown = who(42)[42].identity.unknown
    assert {"unit", "container_id", "pod_uid", "slurm_job"} <= unknown.keys()

"""The program as the daemon starts it, against a real S3 server and a mounted directory."""

from __future__ import annotations

import subprocess
import sys


def test_everything_is_copied_once_by_host_and_month(write, copy, s3):
    paths = [("2026-11", write(0)), ("2026-11", write(1)), ("2026-11", write(25)), ("2026-12", write(26))]
    code, report, stderr = copy("s3://fleet/mpswatch", environment=s3.environment)
    assert (code, stderr) == (0, "")
    assert (report["runs"], report["present"], report["copied"], report["missing"]) == (4, 0, 4, 0)
    assert s3.objects() == {f"mpswatch/runs/gpu-07/{month}/{path.name}": path.read_bytes() for month, path in paths}
    code, report, _ = copy("s3://fleet/mpswatch", environment=s3.environment)
    assert (code, report["present"], report["copied"]) == (0, 4, 0)


def test_hosts_share_a_bucket(write, copy, s3):
    write(0, host="gpu-07")
    write(0, host="gpu-08")
    assert copy("s3://fleet", environment=s3.environment)[0] == 0
    assert sorted(key.split("/")[1] for key in s3.objects()) == ["gpu-07", "gpu-08"]


def test_a_server_that_is_down_loses_nothing_and_is_caught_up_with(write, copy, absent_s3, archive):
    first = write(0)
    code, report, stderr = copy("s3://fleet", environment=absent_s3.environment)
    assert (code, stderr) == (1, "")
    assert report["missing"] == 1
    assert report["error"].startswith(f"{first.name}: ")
    second = write(1)
    assert {entry.path for entry in archive.entries()} == {first, second}, "local copies stay as they are"

    absent_s3.start()
    code, report, _ = copy("s3://fleet", environment=absent_s3.environment)
    assert (code, report["copied"], report["missing"]) == (0, 2, 0)
    assert sorted(key.rsplit("/", 1)[1] for key in absent_s3.objects()) == [first.name, second.name]


def test_a_server_that_lost_everything_gets_it_again(write, copy, s3):
    write(0)
    copy("s3://fleet", environment=s3.environment)
    s3.reset()
    assert copy("s3://fleet", environment=s3.environment)[1]["copied"] == 1


def test_a_bucket_that_is_not_there_is_an_error_with_its_name_and_not_the_end(write, copy, s3):
    write(0)
    code, report, _ = copy("s3://no-such-bucket", "--deadline", "20", environment=s3.environment)
    assert (code, report["missing"]) == (1, 1)
    assert "bucket" in report["error"].lower()


def test_only_what_is_recent_is_looked_at_when_asked(write, copy, s3):
    write(0)
    write(30)
    code, report, _ = copy("s3://fleet", "--since", "2026-11-30T12:00:00+00:00", environment=s3.environment)
    assert (code, report["runs"], report["copied"]) == (0, 1, 1)


def test_a_mounted_directory_is_a_target_too(write, copy, tmp_path):
    path = write(0)
    code, report, _ = copy(f"file://{tmp_path}/mount")
    assert (code, report["copied"]) == (0, 1)
    copied = tmp_path / "mount" / "runs" / "gpu-07" / "2026-11" / path.name
    assert copied.read_bytes() == path.read_bytes()
    assert [found.name for found in copied.parent.iterdir()] == [path.name]


def test_an_empty_archive_is_done_at_once(copy, s3):
    code, report, _ = copy("s3://fleet", environment=s3.environment)
    assert (code, report["runs"], report["missing"]) == (0, 0, 0)


def test_without_fsspec_it_says_what_to_install(write, copy, without_fsspec):
    code, report, stderr = copy("s3://fleet", environment=without_fsspec)
    assert (code, report) == (2, None)
    assert stderr == "copying to a target needs fsspec: pip install 'mpswatch[remote]'\n"


def test_a_url_that_no_back_end_opens_is_named(copy):
    code, report, stderr = copy("nonsense://bucket")
    assert (code, report) == (2, None)
    assert "nonsense" in stderr


def test_the_daemon_does_not_import_what_copies():
    listed = subprocess.run(
        [sys.executable, "-c", "import sys, mpswatch.cli, mpswatch.archive; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert not {"fsspec", "s3fs", "aiobotocore", "mpswatch.remote"} & set(listed)

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import msgspec
import pytest

from mpswatch.archive import Archive
from mpswatch.documents import SweepDocument, from_json

START = datetime(2026, 11, 29, 22, 0, tzinfo=UTC)
REFERENCE = Path(__file__).parents[1] / "reference" / "mps-cap-sweep.v1.json"


class S3Server:
    """A real S3 server on loopback that can be away and come back (empty: it keeps everything in memory)."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        return {
            "FSSPEC_S3_ENDPOINT_URL": self.address,
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "y",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def start(self) -> None:
        self._process = subprocess.Popen(
            [Path(sys.executable).parent / "moto_server", "-H", "127.0.0.1", "-p", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + 30
        while True:
            try:
                self.put_bucket()
            except (OSError, http.client.HTTPException):
                assert time.monotonic() < until, "moto_server does not answer"
                time.sleep(0.1)
            else:
                return

    def put_bucket(self) -> None:
        self._ask("PUT", "/fleet")

    def reset(self) -> None:
        self._ask("POST", "/moto-api/reset")
        self.put_bucket()

    def _ask(self, method: str, path: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request(method, path)
            assert connection.getresponse().status == 200
        finally:
            connection.close()

    def objects(self) -> dict[str, bytes]:
        """Every object in the bucket, by key."""
        bucket = (
            boto3.Session("x", "y", region_name="us-east-1").resource("s3", endpoint_url=self.address).Bucket("fleet")
        )
        return {entry.key: entry.get()["Body"].read() for entry in bucket.objects.all()}

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)
            self._process = None


@pytest.fixture(scope="session")
def shared_s3() -> Iterator[S3Server]:
    server = S3Server()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def s3(shared_s3: S3Server) -> S3Server:
    """The server, with one empty bucket `fleet`."""
    shared_s3.reset()
    return shared_s3


@pytest.fixture
def absent_s3() -> Iterator[S3Server]:
    """A server that is not there yet."""
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def reference() -> SweepDocument:
    return from_json(REFERENCE.read_bytes(), SweepDocument)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    found = Archive(tmp_path / "archive", gzip=True)
    found.prepare()
    return found


@pytest.fixture
def write(archive: Archive, reference: SweepDocument):
    """Write the reference run once more into the archive, `hours` after the first, and give its path."""

    def one(hours: float = 0.0, host: str = "gpu-07") -> Path:
        return archive.write(
            msgspec.structs.replace(
                reference,
                host=host,
                run_id=f"run{hours:g}".replace(".", "-"),
                started_at=START + timedelta(hours=hours),
            )
        )

    return one


@pytest.fixture
def copy(archive: Archive):
    """Run the program as the daemon does, and give its exit code, report and complaints."""

    def run(url: str, *options: str, environment: dict[str, str] | None = None):
        done = subprocess.run(
            [sys.executable, "-m", "mpswatch.remote", str(archive.directory), url, *options],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **(environment or {})},
            cwd=archive.directory,
        )
        return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr

    return run


@pytest.fixture
def without_fsspec(tmp_path: Path) -> dict[str, str]:
    """An environment in which fsspec cannot be imported."""
    folder = tmp_path / "hidden"
    folder.mkdir()
    (folder / "fsspec.py").write_text("raise ImportError('not installed')\n")
    yield {"PYTHONPATH": str(folder)}
    shutil.rmtree(folder)

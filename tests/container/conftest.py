from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BASE = "localhost/mpswatch-test-base:latest"


class Storage:
    """Images and containers in a directory of the test's own, without a registry (real parts, all of them)."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._where = (
            *("--storage-driver", "overlay"),
            *("--root", str(directory / "storage"), "--runroot", str(directory / "run")),
        )

    def podman(self, *arguments: str, **settings) -> subprocess.CompletedProcess[str]:
        return _run(
            ["podman", *self._where, "--runtime", "runc", "--cgroup-manager", "cgroupfs", *arguments], **settings
        )

    def buildah(self, *arguments: str, **settings) -> subprocess.CompletedProcess[str]:
        return _run(["buildah", *self._where, *arguments], **settings)

    def build(self, context: Path, target: str, **arguments: str) -> str:
        """Build a target of the Dockerfile in `context` with these build arguments; gives the image's name."""
        image = f"localhost/mpswatch-test:{target}"
        mounts = []
        certificates = Path(os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt")
        if certificates.exists():  # behind a proxy with a certificate of its own, pip inside needs the host's
            mounts = ["-v", f"{certificates.resolve()}:/host-certificates.crt:ro"]
            arguments = {"PIP_CERT": "/host-certificates.crt", **arguments}
        given = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
        self.buildah(
            *("bud", "--isolation", "chroot", "--format", "docker", "--layers", "--target", target),
            *(*mounts, "--build-arg", f"BASE={BASE}", *given, "-t", image, str(context)),
            timeout=540,
        )
        return image

    def run_arguments(self, image: str, *options: str) -> list[str]:
        return [
            *("podman", *self._where, "--runtime", "runc", "--cgroup-manager", "cgroupfs", "run", "--rm", "-i"),
            *("--ulimit", "nofile=20000:20000", "--ulimit", "nproc=32768:32768", "--network", "host"),
            *(*options, image),
        ]


def _run(command: Sequence[str], *, timeout: float = 120, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL
    )
    if check and done.returncode != 0:
        pytest.fail(f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}", pytrace=False)
    return done


def debian_mirror() -> str:
    """The mirror that this machine's apt uses."""
    policy = _run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]).stdout.split()
    return next((uri for uri in policy if "/debian" in uri and "security" not in uri), policy[0])


@pytest.fixture(scope="session")
def storage() -> Iterator[Storage]:
    """A storage with the base image in it, made by debootstrap."""
    directory = Path(tempfile.mkdtemp(prefix="mpswatch-images-"))
    rootfs = directory / "rootfs"
    _run(["debootstrap", "--variant=minbase", "bookworm", str(rootfs), debian_mirror()], timeout=400)
    made = Storage(directory)
    archive = directory / "rootfs.tar"
    _run(["tar", "-C", str(rootfs), "-cf", str(archive), "."])
    shutil.rmtree(rootfs)
    made.podman("import", str(archive), BASE)
    archive.unlink()
    yield made
    made.podman("rm", "--all", "--force", check=False)
    made.podman("rmi", "--all", "--force", check=False)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build context: what .dockerignore lets in, with a stand-in for torch's wheel in its folder."""
    directory = tmp_path_factory.mktemp("context")
    for name in ("Dockerfile", ".dockerignore", "LICENSE", "README.md", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, directory)
    shutil.copytree(ROOT / "mpswatch", directory / "mpswatch", ignore=shutil.ignore_patterns("__pycache__"))
    wheels = directory / "deploy" / "container" / "wheels"
    wheels.mkdir(parents=True)
    with zipfile.ZipFile(wheels / "torch-99.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("torch.py", "__version__ = '99.0'\n")
        wheel.writestr("torch-99.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 99.0\n")
        wheel.writestr("torch-99.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("torch-99.0.dist-info/RECORD", "")
    return directory


@pytest.fixture(scope="session")
def demo_image(storage: Storage, context: Path) -> str:
    return storage.build(context, "demo", EXTRAS="", MPSWATCH_UID="4242", MPSWATCH_GID="4343", VERSION="1.2.3")


@pytest.fixture(scope="session")
def start(storage: Storage) -> Callable[..., subprocess.Popen[str]]:
    def once(image: str, *arguments: str, options: Sequence[str] = ()) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*storage.run_arguments(image, *options), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return once

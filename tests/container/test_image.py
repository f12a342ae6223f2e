"""The image, built by buildah on a base that debootstrap made, and run by podman."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request

import pytest

pytestmark = [
    pytest.mark.part("debootstrap", "buildah", "podman", "runc"),
    pytest.mark.skipif(os.geteuid() != 0, reason="building and running without an engine needs root"),
    pytest.mark.timeout(900),
]


def config_of(storage, image):
    return json.loads(storage.podman("inspect", image).stdout)[0]


def test_it_is_not_root_and_its_uid_is_an_argument(storage, demo_image):
    assert config_of(storage, demo_image)["Config"]["User"] == "4242:4343"


def test_its_labels_say_what_it_is(storage, demo_image):
    labels = config_of(storage, demo_image)["Config"]["Labels"]
    assert labels["org.opencontainers.image.title"] == "mpswatch"
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert labels["org.opencontainers.image.version"] == "1.2.3"


def test_it_has_a_health_check(storage, demo_image):
    found = config_of(storage, demo_image)
    check = found.get("HealthCheck") or found.get("Healthcheck") or found["Config"].get("Healthcheck")
    assert check["Test"] == ["CMD", "mpswatch", "healthcheck"]


def test_the_demo_runs_in_it_from_beginning_to_end(storage, demo_image, start):
    process = start(demo_image, "demo", "--once", "--json", "--archive", "/var/lib/mpswatch/demo")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    document = json.loads(output[output.index("{") :])
    assert document["simulated"] is True
    assert document["complete_sweep"] is True
    assert [cell["cap"] for cell in document["cells"]] == ["100", "75", "50", "25", "10"]


def get(path: str) -> str | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:10677{path}", timeout=2) as answer:
            return answer.read().decode()
    except (urllib.error.URLError, OSError):
        return None


def wait_for(what, seconds: float, process: subprocess.Popen[str]):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert process.poll() is None, process.stdout.read()
        found = what()
        if found:
            return found
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    pytest.fail(f"not within {seconds} s: {process.stdout.read()}")


def test_told_to_stop_in_mid_sweep_it_leaves_after_its_client_and_in_good_order(storage, demo_image, start):
    name = f"mpswatch-test-{os.getpid()}"
    process = start(demo_image, "demo", "--web.listen-address=127.0.0.1:10677", "--log.level=info",
                    options=["--name", name])  # fmt: skip
    wait_for(lambda: get("/-/ready"), 60, process)
    wait_for(lambda: re.search(r"^mpswatch_sweep_running\{.*\} 1", get("/metrics") or "", re.MULTILINE), 60, process)
    storage.podman("exec", name, "mpswatch", "healthcheck")
    began = time.monotonic()
    storage.podman("stop", "--time", "60", name)
    output, _ = process.communicate(timeout=60)
    assert time.monotonic() - began < 30, "it was not killed at the end of its time"
    assert process.returncode == 0, output
    assert "Traceback" not in output


def test_with_the_hosts_pid_namespace_it_works_too(demo_image, start):
    process = start(demo_image, "demo", "--once", "--archive", "/var/lib/mpswatch/demo", options=["--pid", "host"])
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert "prctl" not in output


def test_run_without_a_gpu_says_what_it_lacks_and_stays_scrapable(demo_image, start):
    process = start(demo_image, "run", "--web.listen-address=127.0.0.1:10677")
    wait_for(lambda: get("/-/ready"), 60, process)
    metrics = get("/metrics")
    assert "mpswatch_build_info" in metrics
    process.send_signal(signal.SIGTERM)  # podman run forwards it
    assert process.wait(30) == 0
    process.stdout.close()


def test_the_full_target_takes_torch_from_the_wheel_folder(storage, context, start):
    image = storage.build(context, "full", EXTRAS="", TORCH="torch==99.0")
    process = start(image, "-c", "import torch; print(torch.__version__)",
                    options=["--entrypoint", "/opt/mpswatch/bin/python"])  # fmt: skip
    output, _ = process.communicate(timeout=60)
    assert (process.returncode, output.strip().splitlines()[-1]) == (0, "99.0")


def test_the_daemon_target_has_no_torch_and_no_numpy_and_no_pip(storage, context, start):
    image = storage.build(context, "daemon", EXTRAS="")
    script = "import importlib.util as u; print([name for name in ('torch', 'numpy', 'pip') if u.find_spec(name)])"
    process = start(image, "-c", script, options=["--entrypoint", "/opt/mpswatch/bin/python"])
    output, _ = process.communicate(timeout=60)
    assert (process.returncode, output.strip().splitlines()[-1]) == (0, "[]")

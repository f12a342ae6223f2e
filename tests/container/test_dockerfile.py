"""What can be said of the Dockerfile without building it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_hadolint_finds_nothing():
    done = subprocess.run(
        [Path(sys.executable).parent / "hadolint", ROOT / "Dockerfile"], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_hadolint_would_have_found_something(tmp_path):
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM debian\nRUN cd /tmp && sudo apt-get install x\n")
    done = subprocess.run([Path(sys.executable).parent / "hadolint", bad], check=False, capture_output=True, text=True)
    assert done.returncode != 0
    assert "DL3004" in done.stdout


def test_the_scripts_of_the_delivery_are_clean():
    scripts = [ROOT / "deploy/helm/refresh", ROOT / ".ci/parts", ROOT / ".ci/run"]
    done = subprocess.run(
        [Path(sys.executable).parent / "shellcheck", *scripts], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_build_context_is_a_list_of_what_goes_in():
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    for rule in rules[1:]:
        if rule.startswith("!"):
            assert (ROOT / rule[1:]).exists(), rule

"""The compose file as the real Docker Compose reads it. No engine can be had for the tests: nothing is started."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "compose"


@pytest.fixture(scope="module")
def services():
    done = subprocess.run(
        ["docker-compose", "-f", FOLDER / "compose.yaml", "config", "--format", "json"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)["services"]


@pytest.fixture(scope="module")
def prometheus():
    return yaml.safe_load((FOLDER / "prometheus.yml").read_text())


def mounts(service) -> dict[str, str]:
    return {volume["target"]: volume["source"] for volume in service["volumes"] if volume["type"] == "bind"}


@pytest.mark.part("docker-compose")
def test_compose_reads_it_without_a_word(services):
    assert set(services) == {"mpswatch", "prometheus", "alertmanager", "grafana"}


@pytest.mark.part("docker-compose")
def test_everything_that_is_mounted_is_there(services):
    for service in services.values():
        for source in mounts(service).values():
            assert Path(source).exists(), source


@pytest.mark.part("docker-compose")
def test_everything_listens_on_loopback_alone(services):
    for name, service in services.items():
        assert {port["host_ip"] for port in service["ports"]} == {"127.0.0.1"}, name


@pytest.mark.part("docker-compose")
def test_images_of_others_have_a_version(services):
    for name, service in services.items():
        if "build" not in service:
            assert re.fullmatch(r"[a-z]+/[a-z]+:v?[0-9]+\.[0-9]+\.[0-9]+", service["image"]), name


@pytest.mark.part("docker-compose")
def test_the_demo_is_built_from_a_target_that_is_there(services):
    build = services["mpswatch"]["build"]
    dockerfile = (Path(build["context"]) / "Dockerfile").read_text()
    assert f" AS {build['target']}\n" in dockerfile


@pytest.mark.part("docker-compose")
def test_nothing_is_killed_before_a_cell_can_be_over_and_nothing_has_a_memory_limit(services):
    assert services["mpswatch"]["stop_grace_period"] == "1m0s"
    for service in services.values():
        assert "mem_limit" not in service
        assert "deploy" not in service


@pytest.mark.part("docker-compose")
def test_the_demo_understands_its_command_line(services):
    from click.testing import CliRunner

    from mpswatch.cli.group import mpswatch_command

    command, *flags = services["mpswatch"]["command"]
    help_text = CliRunner().invoke(mpswatch_command, [command, "--help"]).output
    for flag in flags:
        assert flag.split("=")[0] in help_text


@pytest.mark.part("docker-compose")
def test_prometheus_scrapes_and_alerts_what_is_there(services, prometheus):
    (scrape,) = prometheus["scrape_configs"]
    (alerts,) = prometheus["alerting"]["alertmanagers"]
    for entry in (*scrape["static_configs"], *alerts["static_configs"]):
        for target in entry["targets"]:
            name, port = target.split(":")
            assert int(port) in {published["target"] for published in services[name]["ports"]}


@pytest.mark.part("docker-compose")
def test_grafana_finds_dashboards_and_data_source(services):
    grafana = mounts(services["grafana"])
    provisioning = Path(grafana["/etc/grafana/provisioning"])
    (provider,) = yaml.safe_load((provisioning / "dashboards/mpswatch.yml").read_text())["providers"]
    assert list(Path(grafana[provider["options"]["path"]]).glob("*.json"))
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())["datasources"]
    name, port = source["url"].removeprefix("http://").split(":")
    assert int(port) in {published["target"] for published in services[name]["ports"]}


@pytest.mark.part("promtool")
def test_promtool_accepts_its_prometheus(prometheus, tmp_path):
    rules = prometheus["rule_files"][0].replace("/etc/prometheus", str(ROOT / "deploy/prometheus"))
    config = tmp_path / "prometheus.yml"
    config.write_text(yaml.safe_dump({**prometheus, "rule_files": [rules]}))
    done = subprocess.run(["promtool", "check", "config", config], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS: 2 rule files found" in done.stdout


@pytest.mark.part("amtool")
def test_amtool_accepts_its_alertmanager():
    done = subprocess.run(
        ["amtool", "check-config", ROOT / "deploy/alertmanager/alertmanager.yml"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr

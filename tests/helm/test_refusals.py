"""Values that are unknown, or that contradict each other, are refused before anything is made of them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.part("helm")

GPU = {"nvidia.com/gpu": 1}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown value": ({"replicas": 2}, "replicas"),
    "an unknown value further down": ({"stack": {"user": 0}}, "user"),
    "an unknown setting": ({"config": {"sweep": {"intervall": "1h"}}}, "intervall"),
    "a setting that the chart makes": ({"config": {"daemons": []}}, "daemons"),
    "a cap that MPS would ignore": ({"config": {"sweep": {"caps": [0]}}}, "caps"),
    "a uid that is a name": ({"stack": {"uid": "mps"}}, "uid"),
    "a relative pipe directory": ({"stack": {"pipeDirectory": "nvidia-mps"}}, "pipeDirectory"),
    "a pipe directory that is not mounted": ({"stack": {"pipeDirectory": "/var/mps"}}, "does not lie in"),
    "a log directory that is not mounted": ({"stack": {"logDirectory": "/var/log/mps"}}, "does not lie in"),
    "a log directory without a place": ({"stack": {"logHostPath": "/var/log/mps"}}, "logDirectory"),
    "a shared memory path that is not used": ({"stack": {"shm": {"hostPath": "/dev/shm"}}}, "hostPath"),
    "shared memory without its path": ({"stack": {"shm": {"mode": "hostPath"}}}, "hostPath"),
    "an unknown way to shared memory": ({"stack": {"shm": {"mode": "emptyDir"}}}, "mode"),
    "a runtime's files for somebody who may not read them": ({"identity": {"runtime": "containerd"}}, "stack.uid 0"),
    "an unknown runtime": ({"stack": {"uid": 0}, "identity": {"runtime": "docker"}}, "runtime"),
    "a runtime's files and none of the node's": (
        {"stack": {"uid": 0}, "identity": {"enabled": False, "runtime": "containerd"}},
        "identity",
    ),
    "another place for the node's files": ({"config": {"tenants": {"host_root": "/"}}}, "host_root"),
    "a GPU requested": ({"resources": {"requests": GPU}}, "nvidia.com/gpu"),
    "a GPU as a limit": ({"resources": {"limits": GPU}}, "nvidia.com/gpu"),
    "a shared GPU requested": ({"resources": {"limits": {"nvidia.com/gpu.shared": 1}}}, "nvidia.com/gpu"),
    "a grace period below any cell": ({"terminationGracePeriodSeconds": 30}, "terminationGracePeriodSeconds"),
    "a grace period below this cell": ({"config": {"sweep": {"cell_deadline": "1m45s"}}}, "takes a neighbour down"),
    "a claim without its name": ({"archive": {"type": "claim", "hostPath": ""}}, "claim"),
    "a claim that is not used": ({"archive": {"claim": "runs"}}, "claim"),
    "a host path without a path": ({"archive": {"hostPath": ""}}, "hostPath"),
    "TLS without its file": ({"web": {"tls": True}}, "configSecret"),
    "two monitors": ({"prometheus": {"monitor": {"enabled": True}, "podMonitor": {"enabled": True}}}, "prometheus"),
    "a service monitor without a service": (
        {"prometheus": {"monitor": {"enabled": True}}, "service": {"enabled": False}},
        "enabled",
    ),
    "a headless node port": ({"service": {"type": "NodePort"}}, "clusterIP"),
    "an environment that the chart sets": (
        {"extraEnv": [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "all"}]},
        "extraEnv",
    ),
    "a digest that is none": ({"image": {"digest": "latest"}}, "digest"),
    "a duration that is none": ({"prometheus": {"monitor": {"interval": "often"}}}, "interval"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_is_refused(what, render):
    values, place = REFUSED[what]
    with pytest.raises(subprocess.CalledProcessError) as refused:
        render(values)
    assert place in refused.value.stderr


def test_a_memory_limit_can_be_had_by_who_asks_for_it(render):
    documents = render({"resources": {"limits": {"memory": "4Gi"}}})
    (daemonset,) = (document for document in documents if document["kind"] == "DaemonSet")
    assert daemonset["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] == {"memory": "4Gi"}


def test_every_value_is_in_the_schema_and_every_section_is_closed(chart):
    schema = json.loads((chart / "values.schema.json").read_text())

    def walk(value: object, part: dict[str, Any], place: str) -> None:
        if isinstance(value, dict) and "properties" in part:
            assert part["additionalProperties"] is False, place
            for key, below in value.items():
                assert key in part["properties"], f"{place}.{key}"
                walk(below, part["properties"][key], f"{place}.{key}")

    walk(yaml.safe_load((chart / "values.yaml").read_text()), schema, "")


def test_every_value_is_commented(chart):
    lines = (chart / "values.yaml").read_text().splitlines()
    uncommented = []
    for number, line in enumerate(lines):
        key = line.strip().split(":")[0]
        deep = len(line) - len(line.lstrip())
        if not line.strip() or line.lstrip().startswith(("#", "-")) or deep > 4:
            continue
        above = next(one for one in reversed(lines[:number]) if one.strip())
        opens = above.rstrip().endswith(":")  # the first key of a section that is commented itself
        sibling = above.strip()[0] != "#" and not opens  # belongs to the comment above its elder sibling
        if not (above.lstrip().startswith("#") or opens or sibling):
            uncommented.append(key)
    assert not uncommented


def test_the_schema_knows_exactly_mpswatchs_settings(chart):
    done = subprocess.run(
        [sys.executable, "-c", "import settings; print(settings.text(), end='')"],
        cwd=chart.parent,
        check=True,
        capture_output=True,
        text=True,
    )
    assert (chart / "values.schema.json").read_text() == done.stdout, "run deploy/helm/refresh"

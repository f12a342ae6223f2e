"""The chart as the real Helm renders it, held against Kubernetes' own schemas and against what harms nobody."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from mpswatch.config import load
from mpswatch.identity import containerd, runtimes

ROOT = Path(__file__).parents[2]
PRESETS = ["default", "device-plugin", "everything", "host-managed", "pod-monitor"]

pytestmark = pytest.mark.part("helm")


@pytest.fixture(scope="module", params=PRESETS)
def rendered(request, render, presets):
    return render(presets[request.param])


def of_kind(documents: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [document for document in documents if document["kind"] == kind]


def pod_of(documents: list[dict[str, Any]]) -> dict[str, Any]:
    return of_kind(documents, "DaemonSet")[0]["spec"]["template"]["spec"]


def container_of(documents: list[dict[str, Any]]) -> dict[str, Any]:
    return pod_of(documents)["containers"][0]


def environment_of(documents: list[dict[str, Any]]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container_of(documents)["env"]}


def test_every_ci_values_file_is_rendered_here(presets):
    assert sorted(presets) == PRESETS


def test_helm_lints_it_without_a_warning(chart, presets):
    for values in presets.values():
        done = subprocess.run(
            ["helm", "lint", "--strict", str(chart), "-f", str(values)], check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "[WARNING]" not in done.stdout


def test_kubernetes_schemas_hold_strictly(rendered, tmp_path):
    validate(rendered, tmp_path)


def validate(documents, tmp_path):
    known = [document for document in documents if not document["apiVersion"].startswith("monitoring.coreos.com/")]
    assert known
    file = tmp_path / "rendered.yaml"
    file.write_text(yaml.safe_dump_all(known))
    done = subprocess.run(
        [Path(sys.executable).parent / "kubernetes-validate", "--strict", str(file)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout + done.stderr
    assert said.count("passed") == len(known), said
    assert "WARN" not in said


def test_the_schema_check_itself_finds_an_unknown_field(render, tmp_path):
    broken = render()
    pod_of(broken)["hostPid"] = True
    with pytest.raises(AssertionError, match="hostPid"):
        validate(broken, tmp_path)


def test_operator_objects_have_only_what_the_operator_knows(rendered):
    schemas = json.loads((Path(__file__).parent / "operator-schemas.json").read_text())
    for document in rendered:
        if document["apiVersion"] == "monitoring.coreos.com/v1":
            jsonschema.Draft202012Validator({**schemas[document["kind"]], "$defs": schemas["$defs"]}).validate(document)


def test_the_pod_sees_the_hosts_processes(rendered):
    assert pod_of(rendered)["hostPID"] is True


def test_gpus_are_never_requested(rendered):
    pod = pod_of(rendered)
    for container in pod["containers"] + pod.get("initContainers", []):
        for wants in container["resources"].values():
            assert not [name for name in wants if name.startswith("nvidia.com/")]
    environment = environment_of(rendered)
    assert environment["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert environment["NVIDIA_VISIBLE_DEVICES"]


def test_no_container_has_a_memory_limit(rendered):
    pod = pod_of(rendered)
    for container in pod["containers"] + pod.get("initContainers", []):
        assert "memory" not in container["resources"].get("limits", {})


def test_the_grace_period_is_above_a_cells_deadline(rendered, tmp_path):
    config = configuration(rendered, tmp_path)
    assert pod_of(rendered)["terminationGracePeriodSeconds"] >= config.sweep.cell_deadline + 30


def test_nothing_in_the_pod_is_privileged(rendered):
    security = container_of(rendered)["securityContext"]
    assert security["allowPrivilegeEscalation"] is False
    assert security["privileged"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert pod_of(rendered)["automountServiceAccountToken"] is False


def test_the_pipe_directory_lies_in_a_mount_of_the_host(rendered):
    pipe = environment_of(rendered)["CUDA_MPS_PIPE_DIRECTORY"]
    mounts = {mount["name"]: mount for mount in container_of(rendered)["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod_of(rendered)["volumes"]}
    assert (pipe + "/").startswith(mounts["stack"]["mountPath"] + "/")
    assert volumes["stack"]["hostPath"]["type"] == "Directory", "never made: it would be root's"
    assert set(mounts) == set(volumes), "what is mounted is there, and what is there is mounted"


def files_of_the_node(documents):
    """Where each of the node's files for identities is mounted from, by place, all of them read-only."""
    volumes = {volume["name"]: volume for volume in pod_of(documents)["volumes"]}
    mounts = [mount for mount in container_of(documents)["volumeMounts"] if mount["mountPath"].startswith("/host")]
    assert all(mount["readOnly"] for mount in mounts)
    return {mount["mountPath"]: volumes[mount["name"]]["hostPath"] for mount in mounts}


def test_tenants_get_their_names_from_the_nodes_own_files_never_from_the_containers(rendered, tmp_path):
    root = configuration(rendered, tmp_path).tenants.host_root
    for place, host in files_of_the_node(rendered).items():
        assert place == root + host["path"]
        assert host["type"] in {"File", "Directory"}, "never made where it is missing"
    assert root != "/", "the container's own /etc/passwd would give other people's names"


def test_of_the_nodes_files_none_is_mounted_that_has_not_been_asked_for(render):
    assert files_of_the_node(render()).keys() == {"/host/var/log/containers", "/host/etc/passwd"}
    assert files_of_the_node(render({"identity": {"enabled": False}})) == {}


@pytest.mark.parametrize(
    ("runtime", "place"),
    [
        ("containerd", containerd.PLACES["run/containerd"][0]),
        ("k3s", containerd.PLACES["run/k3s/containerd"][0]),
        ("rke2", containerd.PLACES["run/k3s/containerd"][1]),
        ("k0s", containerd.PLACES["run/k0s/containerd"][0]),
        ("cri-o", runtimes.STORAGE[0]),
    ],
)
def test_each_runtimes_files_are_mounted_where_mpswatch_looks_for_them(render, runtime, place):
    mounted = files_of_the_node(render({"stack": {"uid": 0}, "identity": {"runtime": runtime}}))
    read = Path("/host", place, "overlay-containers" if runtime == "cri-o" else Path(containerd.DATABASE).parent)
    assert str(read) in mounted


def test_shared_memory_is_the_stacks(rendered):
    mounts = {mount["mountPath"] for mount in container_of(rendered)["volumeMounts"]}
    assert pod_of(rendered)["hostIPC"] != ("/dev/shm" in mounts)


def test_mpswatch_accepts_the_configuration_that_is_rendered(rendered, tmp_path):
    config = configuration(rendered, tmp_path)
    assert config.archive.directory == "/var/lib/mpswatch"
    assert config.daemons[0].pipe_directory == environment_of(rendered)["CUDA_MPS_PIPE_DIRECTORY"]


def configuration(documents, tmp_path):
    maps = [document for document in of_kind(documents, "ConfigMap") if "mpswatch.yml" in document["data"]]
    file = tmp_path / "mpswatch.yml"
    file.write_text(maps[0]["data"]["mpswatch.yml"])
    return load(file)


def test_the_flags_are_those_of_the_command_line(rendered):
    from click.testing import CliRunner

    from mpswatch.cli.group import mpswatch_command

    command, *flags = container_of(rendered)["args"]
    help_text = CliRunner().invoke(mpswatch_command, [command, "--help"]).output
    for flag in flags:
        assert flag.split("=")[0] in help_text


def test_the_host_in_documents_is_the_node(rendered):
    assert environment_of(rendered)["MPSWATCH_HOST"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_selectors_meet_the_pods(rendered):
    labels = of_kind(rendered, "DaemonSet")[0]["spec"]["template"]["metadata"]["labels"]
    selectors = [of_kind(rendered, "DaemonSet")[0]["spec"]["selector"]["matchLabels"]]
    selectors += [service["spec"]["selector"] for service in of_kind(rendered, "Service")]
    selectors += [monitor["spec"]["selector"]["matchLabels"] for monitor in of_kind(rendered, "PodMonitor")]
    selectors += [policy["spec"]["podSelector"]["matchLabels"] for policy in of_kind(rendered, "NetworkPolicy")]
    for selector in selectors:
        assert selector.items() <= labels.items()


def test_the_service_monitor_finds_the_service_and_the_rules_find_the_job(render, presets):
    documents = render(presets["everything"])
    (monitor,), (service,) = of_kind(documents, "ServiceMonitor"), of_kind(documents, "Service")
    labels = service["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert labels[monitor["spec"]["jobLabel"]] == "mpswatch"
    assert [port["name"] for port in service["spec"]["ports"]] == [monitor["spec"]["endpoints"][0]["port"]]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"
    assert {rule["targetLabel"]: rule.get("replacement") for rule in endpoint["relabelings"]} == {
        "instance": None,
        "cluster": "production",
    }


def test_the_image_by_digest_goes_before_its_tag(render, presets):
    image = container_of(render(presets["everything"]))["image"]
    assert image.startswith("registry.example:5000/gpu/mpswatch-full@sha256:")


def test_the_charts_version_of_mpswatch_is_this_one(chart):
    import mpswatch

    assert yaml.safe_load((chart / "Chart.yaml").read_text())["appVersion"] == mpswatch.__version__


def test_a_container_that_may_not_be_root_is_not(render):
    assert pod_of(render({"stack": {"uid": 1000}}))["securityContext"]["runAsNonRoot"] is True
    assert pod_of(render({"stack": {"uid": 0}}))["securityContext"]["runAsNonRoot"] is False

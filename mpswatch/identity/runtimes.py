"""What docker, CRI-O and podman write down about their containers. Most of it only root may read.

A pod's labels are not among its containers': the kubelet gives a container four labels of its own, and the pod's to
the pod's *sandbox*. So each runtime is asked for the container, and for the sandbox that it names. Sources: CRI-O's
sandbox_run and factory/container, cri-dockerd's container_create.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mpswatch.identity.facts import ContainerFacts, asked
from mpswatch.identity.files import any_json, json_object, labels, text
from mpswatch.names import shown

DOCKER = "var/lib/docker/containers"

STORAGE = ("var/lib/containers/storage", "run/containers/storage")
"""What CRI-O and podman share."""

_ID = re.compile(r"[0-9a-f]{64}")
_CONTAINER_NAME = "io.kubernetes.container.name"


def docker(root: Path, container_id: str) -> ContainerFacts:
    """docker's ID/config.v2.json; the pod's sandbox (cri-dockerd) is a container of its own."""
    file = _docker_file(root, container_id)
    config = file.get("Config") or {}
    own = config.get("Labels") or {}
    name, sandbox = text(file, "Name"), _id(own, "io.kubernetes.sandbox.id")
    facts = ContainerFacts(
        name=text(own, _CONTAINER_NAME) or (name.removeprefix("/") if name else None),
        image=text(config, "Image"),
        runtime="docker",
        pod_uid=text(own, "io.kubernetes.pod.uid"),
        pod_name=text(own, "io.kubernetes.pod.name"),
        pod_namespace=text(own, "io.kubernetes.pod.namespace"),
        labels=labels(own),
    )
    if sandbox is None:
        return replace(facts, labels_known=True)
    return asked(facts, lambda: _of_the_pod(_docker_labels(root, sandbox)))


def storage(folder: Path, container_id: str) -> ContainerFacts:
    """CRI-O's and podman's ID/userdata/config.json, and the list of all with their names.

    podman's own labels are in a database of its own, which is not read.
    """
    found = ContainerFacts()
    containers = folder / "overlay-containers"
    try:
        notes = _notes(containers, container_id)
        own, sandbox = _written_labels(notes), _id(notes, "io.kubernetes.cri-o.SandboxID")
        found = ContainerFacts(
            name=text(notes, _CONTAINER_NAME),
            image=text(notes, "io.kubernetes.cri-o.ImageName", "io.container.manager.image"),
            runtime="cri-o" if own is not None else None,
            pod_uid=text(notes, "io.kubernetes.pod.uid"),
            pod_name=text(notes, "io.kubernetes.pod.name"),
            pod_namespace=text(notes, "io.kubernetes.pod.namespace"),
            labels={**labels(notes), **(own or {})},
        )
        if own is not None and sandbox is not None:
            found = asked(found, lambda: _of_the_pod(_written_labels(_notes(containers, sandbox))))
    except FileNotFoundError:
        pass
    if found.name is None:
        found = found.filled_from(_from_list(containers / "containers.json", container_id))
    return found


def _id(holder: Mapping[str, Any], key: str) -> str | None:
    """The id of another container: what a user's own podman writes there must not lead us elsewhere."""
    value = holder.get(key)
    return value if isinstance(value, str) and _ID.fullmatch(value) else None


def _of_the_pod(written: Mapping[str, str] | None) -> ContainerFacts:
    """What a sandbox's labels add to its container's facts. It calls itself POD: the container's own name stays."""
    return ContainerFacts(labels=written or {}, labels_known=written is not None)


def _docker_file(root: Path, container_id: str) -> Mapping[str, Any]:
    return json_object(root / DOCKER / container_id / "config.v2.json")


def _docker_labels(root: Path, container_id: str) -> Mapping[str, str]:
    return labels((_docker_file(root, container_id).get("Config") or {}).get("Labels") or {})


def _notes(containers: Path, container_id: str) -> Mapping[str, Any]:
    return json_object(containers / container_id / "userdata/config.json").get("annotations") or {}


def _written_labels(notes: Mapping[str, Any]) -> Mapping[str, str] | None:
    """CRI-O's labels, which it writes as JSON into one annotation."""
    written = notes.get("io.kubernetes.cri-o.Labels")
    return labels(json.loads(written) or {}) if isinstance(written, str) else None


def _from_list(path: Path, container_id: str) -> ContainerFacts:
    for entry in any_json(path):
        if entry.get("id") == container_id:
            names = entry.get("names") or [None]
            written = entry.get("metadata")
            metadata = json.loads(written) if isinstance(written, str) and written else {}
            name = names[0] if isinstance(names[0], str) else None
            return ContainerFacts(
                name=text(metadata, "name") or (shown(name) if name else None), image=text(metadata, "image-name")
            )
    return ContainerFacts()

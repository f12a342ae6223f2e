"""What each runtime writes down about its containers. Most of it only root may read.

A pod's labels are not among its containers': the kubelet gives a container four labels of its own, and the pod's to
the pod's *sandbox*. So each runtime is asked for the container, and for the sandbox that it names. Sources:
containerd's internal/cri and core/metadata (and a recording), CRI-O's sandbox_run and factory/container, cri-dockerd's
container_create.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from mpswatch.documents import Reason
from mpswatch.identity import bolt
from mpswatch.identity.facts import ContainerFacts
from mpswatch.identity.files import any_json, json_object, labels, text
from mpswatch.names import shown

CONTAINERD: dict[str, tuple[str, ...]] = {
    "run/containerd": ("var/lib/containerd",),
    "run/k3s/containerd": ("var/lib/rancher/k3s/agent/containerd", "var/lib/rancher/rke2/agent/containerd"),
    "run/k0s/containerd": ("var/lib/k0s/containerd",),
}
"""Where containerd keeps its state, and where the rest: its defaults, and distributions that bring one along."""

DATABASE = "io.containerd.metadata.v1.bolt/meta.db"

DOCKER = "var/lib/docker/containers"

STORAGE = ("var/lib/containers/storage", "run/containers/storage")
"""What CRI-O and podman share."""

_CONTAINER_NAME = "io.kubernetes.container.name"

_NAMESPACES = ("k8s.io", "default")

_Labels: TypeAlias = Callable[[], Mapping[str, str] | None]
"""Reads labels; None where they are not written down."""


def containerd(root: Path, container_id: str) -> ContainerFacts:
    """The annotations in the bundle's config.json, and the labels in containerd's database, their only place."""
    for state, stores in CONTAINERD.items():
        for namespace in _NAMESPACES:
            bundle = root / state / "io.containerd.runtime.v2.task" / namespace / container_id
            try:
                notes = json_object(bundle / "config.json").get("annotations") or {}
            except FileNotFoundError:
                continue
            sandbox = text(notes, "io.kubernetes.cri.sandbox-id")
            ids = [container_id] if sandbox is None else [container_id, sandbox]
            facts = ContainerFacts(
                name=text(notes, "io.kubernetes.cri.container-name", "nerdctl/name"),
                image=text(notes, "io.kubernetes.cri.image-name"),
                runtime="containerd",
                pod_uid=text(notes, "io.kubernetes.cri.sandbox-uid"),
                pod_name=text(notes, "io.kubernetes.cri.sandbox-name"),
                pod_namespace=text(notes, "io.kubernetes.cri.sandbox-namespace"),
                labels=labels(notes),
            )
            databases = [root / store / DATABASE for store in stores]
            return _with_labels(facts, [partial(_stored, databases, namespace, one) for one in ids])
    return ContainerFacts()


def docker(root: Path, container_id: str) -> ContainerFacts:
    """docker's ID/config.v2.json; the pod's sandbox (cri-dockerd) is a container of its own."""
    file = json_object(root / DOCKER / container_id / "config.v2.json")
    config = file.get("Config") or {}
    own = config.get("Labels") or {}
    name, sandbox = text(file, "Name"), text(own, "io.kubernetes.sandbox.id")
    facts = ContainerFacts(
        name=text(own, _CONTAINER_NAME) or (name.removeprefix("/") if name else None),
        image=text(config, "Image"),
        runtime="docker",
        pod_uid=text(own, "io.kubernetes.pod.uid"),
        pod_name=text(own, "io.kubernetes.pod.name"),
        pod_namespace=text(own, "io.kubernetes.pod.namespace"),
        labels=labels(own),
    )

    def of_the_pod() -> Mapping[str, str]:
        of_sandbox = json_object(root / DOCKER / str(sandbox) / "config.v2.json").get("Config") or {}
        return labels(of_sandbox.get("Labels") or {})

    return _with_labels(facts, [of_the_pod] if sandbox is not None else [])


def storage(folder: Path, container_id: str) -> ContainerFacts:
    """CRI-O's and podman's ID/userdata/config.json, and the list of all with their names.

    podman's own labels are in a database of its own, which is not read.
    """
    found = ContainerFacts()
    containers = folder / "overlay-containers"
    try:
        notes = _notes(containers, container_id)
        own, sandbox = _written_labels(notes), text(notes, "io.kubernetes.cri-o.SandboxID")
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
            found = _with_labels(found, [lambda: _written_labels(_notes(containers, sandbox))])
    except FileNotFoundError:
        pass
    if found.name is None:
        found = found.filled_from(_from_list(containers / "containers.json", container_id))
    return found


def _with_labels(facts: ContainerFacts, readers: list[_Labels]) -> ContainerFacts:
    """`facts` with what `readers` give: they know the labels only if all of them could be read."""
    found, known = dict(facts.labels), True
    for read in readers:
        try:
            more = read()
        except PermissionError:
            facts = replace(facts, unknown=Reason.PERMISSION)
            more = None
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            more = None
        name = found.get(_CONTAINER_NAME)
        found |= more or {}
        if name is not None:
            found[_CONTAINER_NAME] = name  # a sandbox says POD
        known = known and more is not None
    return replace(facts, labels=found, labels_known=known)


def _stored(databases: list[Path], namespace: str, container_id: str) -> Mapping[str, str] | None:
    """The labels that containerd's database holds: all of them, the image's as well."""
    for database in databases:
        try:
            found = bolt.bucket(database, b"v1", namespace.encode(), b"containers", container_id.encode(), b"labels")
        except FileNotFoundError:
            continue
        if found is not None:
            return {_decoded(key): shown(_decoded(value)) for key, value in found.items()}
    return None


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


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")

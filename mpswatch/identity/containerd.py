"""What containerd writes down: annotations in the bundles of its running containers, all else in its database.

Only root may read either. The database alone is enough: it is one file, without the mounts of every container's root
that the bundles hold. Sources: containerd's core/metadata (buckets.go has the layout), internal/cri, and a recording.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from mpswatch.identity import bolt
from mpswatch.identity.facts import ContainerFacts, asked
from mpswatch.identity.files import json_object, labels, text
from mpswatch.names import shown

PLACES: dict[str, tuple[str, ...]] = {
    "run/containerd": ("var/lib/containerd",),
    "run/k3s/containerd": ("var/lib/rancher/k3s/agent/containerd", "var/lib/rancher/rke2/agent/containerd"),
    "run/k0s/containerd": ("var/lib/k0s/containerd",),
}
"""Where containerd keeps its bundles, and where the rest: its defaults, and distributions that bring one along."""

DATABASE = "io.containerd.metadata.v1.bolt/meta.db"

_NAMESPACES = ("k8s.io", "default")
_CRI = b"io.cri-containerd.container.metadata"


def containerd(root: Path, container_id: str) -> ContainerFacts:
    """All that bundle and database tell of a container, its pod's labels included."""
    facts = ContainerFacts()
    for state, stores in PLACES.items():
        for namespace in _NAMESPACES:
            bundle = root / state / "io.containerd.runtime.v2.task" / namespace / container_id / "config.json"
            facts = asked(facts, partial(_bundled, bundle))
            for store in stores:
                facts = asked(facts, partial(_stored, root / store / DATABASE, namespace, container_id))
            if facts.runtime is not None:
                return facts
    return facts


def _bundled(config: Path) -> ContainerFacts:
    notes = json_object(config).get("annotations") or {}
    return ContainerFacts(
        name=text(notes, "io.kubernetes.cri.container-name", "nerdctl/name"),
        image=text(notes, "io.kubernetes.cri.image-name"),
        runtime="containerd",
        pod_uid=text(notes, "io.kubernetes.cri.sandbox-uid"),
        pod_name=text(notes, "io.kubernetes.cri.sandbox-name"),
        pod_namespace=text(notes, "io.kubernetes.cri.sandbox-namespace"),
        labels=labels(notes),
    )


def _stored(database: Path, namespace: str, container_id: str) -> ContainerFacts:
    """From `v1/NAMESPACE/containers/ID`; the labels are the container's (its image's included) and its sandbox's."""
    record = _bucket(database, namespace, container_id)
    if record is None:
        return ContainerFacts()
    own = _labels(database, namespace, container_id) or {}
    sandbox = _sandbox(record, _bucket(database, namespace, container_id, b"extensions") or {})
    pod = _labels(database, namespace, sandbox) if sandbox is not None else {}
    return ContainerFacts(
        name=text(own, "io.kubernetes.container.name", "nerdctl/name"),
        image=text({"image": _text(record.get(b"image", b""))}, "image"),
        runtime="containerd",
        pod_uid=text(own, "io.kubernetes.pod.uid"),
        pod_name=text(own, "io.kubernetes.pod.name"),
        pod_namespace=text(own, "io.kubernetes.pod.namespace"),
        labels={**own, **(pod or {})},
        labels_known=pod is not None,
    )


def _sandbox(record: Mapping[bytes, bytes], extensions: Mapping[bytes, bytes]) -> str | None:
    """The sandbox that a container is in; before containerd 1.7 it stands in what the CRI plugin keeps, as JSON."""
    stored = record.get(b"sandboxid")
    if stored:
        return stored.decode("ascii", "backslashreplace")
    kept = extensions.get(_CRI, b"")
    if b"{" not in kept:
        return None
    written: Any = json.loads(kept[kept.index(b"{") :])  # behind the name of its type
    return text(written.get("Metadata") or {}, "SandboxID")


def _labels(database: Path, namespace: str, container_id: str) -> dict[str, str] | None:
    found = _bucket(database, namespace, container_id, b"labels")
    if found is None:
        return None
    return {_text(key): shown(_text(value)) for key, value in found.items()}


def _bucket(database: Path, namespace: str, container_id: str, *names: bytes) -> dict[bytes, bytes] | None:
    return bolt.bucket(database, b"v1", namespace.encode(), b"containers", container_id.encode(), *names)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")

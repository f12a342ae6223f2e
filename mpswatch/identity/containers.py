"""What the runtimes and the kubelet write down about a container: its name, image, pod and labels.

Most of it only root may read; where it cannot be read a container is known by its id alone. Every file is bounded and
believed only as JSON, and what it says is shown like any name that somebody else chose.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mpswatch.documents import Reason
from mpswatch.names import shown

_MOST_BYTES = 4 << 20
_MOST_ENTRIES = 20000
_LOG = re.compile(r"(?P<pod>[a-z0-9.-]+)_(?P<namespace>[a-z0-9-]+)_(?P<container>[a-z0-9-]+)-(?P<id>[0-9a-f]{64})\.log")


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """What was written down; None where nothing says. `unknown` is why, where a file could not be read."""

    name: str | None = None
    image: str | None = None
    pod_uid: str | None = None
    pod_name: str | None = None
    pod_namespace: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    unknown: Reason | None = None

    @property
    def found(self) -> bool:
        return self.name is not None or self.pod_name is not None

    def filled_from(self, other: ContainerFacts) -> ContainerFacts:
        """These facts, and what they lack from `other`."""
        return ContainerFacts(
            name=self.name or other.name,
            image=self.image or other.image,
            pod_uid=self.pod_uid or other.pod_uid,
            pod_name=self.pod_name or other.pod_name,
            pod_namespace=self.pod_namespace or other.pod_namespace,
            labels={**other.labels, **self.labels},
            unknown=self.unknown or other.unknown,
        )


class ContainerFiles:
    """The files below `root`, the host's file system."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def facts(self, container_id: str, *, pod_uid: str | None, home: str | None) -> ContainerFacts:
        """All that is written down about a container. `home` is its user's, for podman without root."""
        found = ContainerFacts()
        readers: list[Callable[[], ContainerFacts]] = [
            lambda: self._kubelet_log(container_id),
            lambda: self._containerd(container_id),
            lambda: self._docker(container_id),
            lambda: self._storage(self._root / "var/lib/containers/storage", container_id),
            lambda: self._storage(self._root / "run/containers/storage", container_id),
        ]
        if home is not None and home.startswith("/"):
            folder = self._root / home.lstrip("/") / ".local/share/containers/storage"
            readers.append(lambda: self._storage(folder, container_id))
        for read in readers:
            try:
                found = found.filled_from(read())
            except PermissionError:
                found = replace(found, unknown=found.unknown or Reason.PERMISSION)
            except (OSError, ValueError, TypeError, AttributeError, RecursionError):
                continue  # not there, or not what it should be: then it says nothing
        if pod_uid is not None and found.pod_name is None:
            found = found.filled_from(self._pod_logs(pod_uid))
        return replace(found, unknown=None) if found.found else found

    def _kubelet_log(self, container_id: str) -> ContainerFacts:
        """The kubelet's links: /var/log/containers/POD_NAMESPACE_CONTAINER-ID.log, which anybody may list."""
        ending = f"-{container_id}.log"
        for name in _names(self._root / "var/log/containers"):
            if name.endswith(ending) and (match := _LOG.fullmatch(name)):
                return ContainerFacts(name=match["container"], pod_name=match["pod"], pod_namespace=match["namespace"])
        return ContainerFacts()

    def _pod_logs(self, pod_uid: str) -> ContainerFacts:
        """The kubelet's folders: /var/log/pods/NAMESPACE_POD_UID."""
        try:
            for name in _names(self._root / "var/log/pods"):
                namespace, _, rest = name.partition("_")
                pod, _, uid = rest.rpartition("_")
                if uid == pod_uid and namespace and pod:
                    return ContainerFacts(pod_name=shown(pod), pod_namespace=shown(namespace))
        except PermissionError:
            return ContainerFacts(unknown=Reason.PERMISSION)
        except OSError:
            pass
        return ContainerFacts()

    def _containerd(self, container_id: str) -> ContainerFacts:
        """containerd's own bundle: the annotations that its CRI plugin, or nerdctl, put into config.json."""
        tasks = self._root / "run/containerd/io.containerd.runtime.v2.task"
        for namespace in ("k8s.io", "default", "moby"):
            try:
                notes = _json(tasks / namespace / container_id / "config.json").get("annotations") or {}
            except FileNotFoundError:
                continue
            return ContainerFacts(
                name=_text(notes, "io.kubernetes.cri.container-name", "nerdctl/name"),
                image=_text(notes, "io.kubernetes.cri.image-name"),
                pod_uid=_text(notes, "io.kubernetes.cri.sandbox-uid"),
                pod_name=_text(notes, "io.kubernetes.cri.sandbox-name"),
                pod_namespace=_text(notes, "io.kubernetes.cri.sandbox-namespace"),
                labels=_labels(notes),
            )
        return ContainerFacts()

    def _docker(self, container_id: str) -> ContainerFacts:
        """docker's /var/lib/docker/containers/ID/config.v2.json."""
        file = _json(self._root / "var/lib/docker/containers" / container_id / "config.v2.json")
        config = file.get("Config") or {}
        labels = config.get("Labels") or {}
        name = _text(file, "Name")
        return ContainerFacts(
            name=_text(labels, "io.kubernetes.container.name") or (name.removeprefix("/") if name else None),
            image=_text(config, "Image"),
            pod_uid=_text(labels, "io.kubernetes.pod.uid"),
            pod_name=_text(labels, "io.kubernetes.pod.name"),
            pod_namespace=_text(labels, "io.kubernetes.pod.namespace"),
            labels=_labels(labels),
        )

    def _storage(self, storage: Path, container_id: str) -> ContainerFacts:
        """What CRI-O and podman share: a container's config.json, and the list of all with their names."""
        folder = storage / "overlay-containers"
        found = ContainerFacts()
        try:
            notes = _json(folder / container_id / "userdata/config.json").get("annotations") or {}
            labels = notes.get("io.kubernetes.cri-o.Labels")
            found = ContainerFacts(
                name=_text(notes, "io.kubernetes.container.name"),
                image=_text(notes, "io.kubernetes.cri-o.ImageName", "io.container.manager.image"),
                pod_uid=_text(notes, "io.kubernetes.pod.uid"),
                pod_name=_text(notes, "io.kubernetes.pod.name"),
                pod_namespace=_text(notes, "io.kubernetes.pod.namespace"),
                labels={**_labels(notes), **(_labels(json.loads(labels)) if isinstance(labels, str) else {})},
            )
        except FileNotFoundError:
            pass
        if found.name is None:
            found = found.filled_from(_from_list(folder / "containers.json", container_id))
        return found


def _from_list(path: Path, container_id: str) -> ContainerFacts:
    for entry in _any_json(path):
        if entry.get("id") == container_id:
            names = entry.get("names") or [None]
            written = entry.get("metadata")
            metadata = json.loads(written) if isinstance(written, str) and written else {}
            name = names[0] if isinstance(names[0], str) else None
            return ContainerFacts(
                name=_text(metadata, "name") or (shown(name) if name else None), image=_text(metadata, "image-name")
            )
    return ContainerFacts()


def _names(folder: Path) -> Iterable[str]:
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if number >= _MOST_ENTRIES:
                return
            yield entry.name


def _json(path: Path) -> dict[str, Any]:
    content = _any_json(path)
    if not isinstance(content, dict):
        raise TypeError(f"{path} holds no object")
    return content


def _any_json(path: Path) -> Any:  # noqa: ANN401 - whatever JSON holds
    # A user's own podman writes below that user's home: no fifo must hold us up there, and no link lead us elsewhere.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise TypeError(f"{path} is no regular file")
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"{path} is longer than {_MOST_BYTES} bytes")
    return json.loads(data)


def _text(holder: Mapping[str, Any], *keys: str) -> str | None:
    for key in keys:
        value = holder.get(key)
        if isinstance(value, str) and value:
            return shown(value)
    return None


def _labels(holder: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): shown(value) for key, value in holder.items() if isinstance(value, str)}

"""All that the runtimes and the kubelet write down about a container: its name, image, pod and labels.

Where nothing can be read a container is known by its id alone. What is complete is remembered: a container's name, pod
and labels are those that it was made with.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from mpswatch.identity import kubelet, runtimes
from mpswatch.identity.containerd import containerd
from mpswatch.identity.facts import ContainerFacts, asked

_MOST_REMEMBERED = 4096


class ContainerFiles:
    """The files below `root`, the host's file system."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._complete: dict[str, ContainerFacts] = {}

    def facts(self, container_id: str, *, pod_uid: str | None, home: str | None) -> ContainerFacts:
        """All that is written down about a container. `home` is its user's, for podman without root."""
        found = self._complete.get(container_id)
        if found is None:
            found = self._read(container_id, pod_uid, home)
            if _is_complete(found, pod_uid):
                if len(self._complete) >= _MOST_REMEMBERED:
                    self._complete.clear()
                self._complete[container_id] = found
        return found

    def _read(self, container_id: str, pod_uid: str | None, home: str | None) -> ContainerFacts:
        root, found = self._root, ContainerFacts()
        storages = [root / storage for storage in runtimes.STORAGE]
        if home is not None and home.startswith("/"):
            storages.append(root / home.lstrip("/") / ".local/share/containers/storage")
        readers: list[Callable[[], ContainerFacts]] = [
            partial(kubelet.by_link, root, container_id),
            partial(containerd, root, container_id),
            partial(runtimes.docker, root, container_id),
            *(partial(runtimes.storage, folder, container_id) for folder in storages),
        ]
        if pod_uid is not None:
            readers.append(partial(kubelet.by_folder, root, pod_uid))
        for read in readers:
            if not _is_complete(found, pod_uid):
                found = asked(found, read)
        return found


def _is_complete(found: ContainerFacts, pod_uid: str | None) -> bool:
    return found.name is not None and found.labels_known and (found.pod_name is not None or pod_uid is None)

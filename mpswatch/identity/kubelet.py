"""What the kubelet's folders of logs tell by their names alone, which anybody may list. It writes no labels down."""

from __future__ import annotations

import re
from pathlib import Path

from mpswatch.identity.facts import ContainerFacts
from mpswatch.identity.files import names
from mpswatch.names import shown

_LOG = re.compile(r"(?P<pod>[a-z0-9.-]+)_(?P<namespace>[a-z0-9-]+)_(?P<container>[a-z0-9-]+)-(?P<id>[0-9a-f]{64})\.log")


def by_link(root: Path, container_id: str) -> ContainerFacts:
    """From /var/log/containers/POD_NAMESPACE_CONTAINER-ID.log; the kubelet cuts names that are too long."""
    ending = f"-{container_id}.log"
    for name in names(root / "var/log/containers"):
        if name.endswith(ending) and (match := _LOG.fullmatch(name)):
            return ContainerFacts(name=match["container"], pod_name=match["pod"], pod_namespace=match["namespace"])
    return ContainerFacts()


def by_folder(root: Path, pod_uid: str) -> ContainerFacts:
    """From /var/log/pods/NAMESPACE_POD_UID/CONTAINER: a pod with one container has told which it is."""
    for folder in names(root / "var/log/pods"):
        namespace, _, rest = folder.partition("_")
        pod, _, uid = rest.rpartition("_")
        if uid == pod_uid and namespace and pod:
            containers = list(names(root / "var/log/pods" / folder))
            return ContainerFacts(
                name=shown(containers[0]) if len(containers) == 1 else None,
                pod_name=shown(pod),
                pod_namespace=shown(namespace),
            )
    return ContainerFacts()

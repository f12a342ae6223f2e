"""What is written down about a container."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from mpswatch.documents import ContainerRuntime, Reason


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """None where nothing says.

    `labels` are the container's and its pod's; without `labels_known` there may be others than these. `unknown` is
    why something is not known, where it may not be read.
    """

    name: str | None = None
    image: str | None = None
    runtime: ContainerRuntime | None = None
    pod_uid: str | None = None
    pod_name: str | None = None
    pod_namespace: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    labels_known: bool = False
    unknown: Reason | None = None

    def filled_from(self, other: ContainerFacts) -> ContainerFacts:
        """These facts, and what they lack from `other`."""
        return ContainerFacts(
            name=self.name or other.name,
            image=self.image or other.image,
            runtime=self.runtime or other.runtime,
            pod_uid=self.pod_uid or other.pod_uid,
            pod_name=self.pod_name or other.pod_name,
            pod_namespace=self.pod_namespace or other.pod_namespace,
            labels={**other.labels, **self.labels},
            labels_known=self.labels_known or other.labels_known,
            unknown=self.unknown or other.unknown,
        )


def asked(found: ContainerFacts, read: Callable[[], ContainerFacts]) -> ContainerFacts:
    """`found`, and what it lacks from one more place: one that is not what it should be says nothing."""
    try:
        return found.filled_from(read())
    except PermissionError:
        return replace(found, unknown=found.unknown or Reason.PERMISSION)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return found

"""Who a process is: unit, container, pod, job, user and command line, read once and remembered with its start time."""

from mpswatch.identity.known import Identities, Known

__all__ = ["Identities", "Known"]

"""Configured patterns held against each process once, and again when it has become another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mpswatch.documents import Tenant
from mpswatch.expectations import Expectations, Process, Verdict, judged, marked
from mpswatch.identity import Known


class Patterns:
    """Remembers what was found of a process as long as its identity and its name stay the same."""

    def __init__(self, what: Expectations) -> None:
        self.what = what
        self._seen: dict[int, tuple[Known | None, str | None, Verdict]] = {}

    def mark(self, tenants: Sequence[Tenant], known: Mapping[int, Known]) -> tuple[Tenant, ...]:
        """`tenants` with the names of the patterns that they match."""
        if not self.what.expected and not self.what.welcome:
            return tuple(tenants)
        seen: dict[int, tuple[Known | None, str | None, Verdict]] = {}
        for tenant in tenants:
            if tenant.kind in {"server", "ours"} or tenant.pid in seen:
                continue
            who = known.get(tenant.pid) if tenant.identity is not None else None
            before = self._seen.get(tenant.pid)
            if before is not None and before[0] is who and who is not None and before[1] == tenant.process_name:
                seen[tenant.pid] = before
            else:
                seen[tenant.pid] = (who, tenant.process_name, self._judged(tenant, who))
        self._seen = seen
        return marked(tenants, {pid: verdict for pid, (_, _, verdict) in seen.items()})

    def _judged(self, tenant: Tenant, who: Known | None) -> Verdict:
        process = Process(
            name=tenant.process_name,
            identity=tenant.identity,
            arguments=who.arguments if who is not None else (),
            labels=who.labels if who is not None else {},
            labels_known=who is None or who.labels_known,
        )
        return judged(process, self.what)

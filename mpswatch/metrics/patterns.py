"""Metrics of configured patterns, and sums by what tenants have in common: both bounded by configuration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from mpswatch.documents import Tenant, TenantIdentity
from mpswatch.latest import View
from mpswatch.metrics.sheet import Options, Sheet
from mpswatch.metrics.tenants import OTHER, memory

DEFAULT_PATTERN = "desktop"
"""The list that is there without being asked for: that it matches nothing is no news."""

GROUPS: dict[str, Callable[[TenantIdentity], str | None]] = {
    "unit": lambda who: who.unit,
    "container": lambda who: who.container_name or (who.container_id or "")[:12],
    "pod": lambda who: who.pod_name or who.pod_uid,
    "namespace": lambda who: who.pod_namespace,
    "image": lambda who: who.image,
    "user": lambda who: who.user,
    "slurm_job": lambda who: who.slurm_job,
}


def patterns(view: View, sheet: Sheet, options: Options) -> None:
    if view.poll is None:
        return
    blind = view.poll.tenants.unknown_reason if view.poll.tenants.value is None else None
    for look in view.poll.expectations:
        unknown = blind or look.unknown_reason
        if look.minimum is not None:
            sheet.put("expected_clients", look.minimum, look.name)
            _count("expected_clients_managed", look.managed, look.name, unknown, sheet)
            # one that is seen to have escaped has, whatever else is not known
            _count("escaped_clients", look.escaped, look.name, None if look.escaped else unknown, sheet)
        if look.minimum is not None or look.name != DEFAULT_PATTERN:
            _count("pattern_matches", look.matched, look.name, unknown, sheet)
    if view.poll.tenants.value is not None:
        _groups(view.poll.tenants.value, sheet, options)


def _count(metric: str, value: int, name: str, unknown: str | None, sheet: Sheet) -> None:
    if unknown is None:
        sheet.put(metric, value, name)
    else:
        sheet.unknown(metric, unknown)


def _groups(found: Iterable[Tenant], sheet: Sheet, options: Options) -> None:
    by_place: dict[tuple[str, str], list[Tenant]] = defaultdict(list)
    for tenant in found:
        if tenant.kind not in {"ours", "server"}:
            by_place[tenant.gpu_uuid or "", tenant.kind].append(tenant)
    for (uuid, kind), here in by_place.items():
        for by in options.tenant_groups:
            for group, members in _largest(here, by, options.tenant_names).items():
                sheet.put("tenant_group_processes", len(members), uuid, kind, by, group)
                sheet.put("tenant_group_memory_bytes", memory(members)[0], uuid, kind, by, group)


def _largest(here: Sequence[Tenant], by: str, number: int) -> dict[str, list[Tenant]]:
    """The members of each group; beyond the largest `number` all go to `other`. Without one the group is empty."""
    groups: dict[str, list[Tenant]] = defaultdict(list)
    for tenant in here:
        groups[(GROUPS[by](tenant.identity) if tenant.identity is not None else None) or ""].append(tenant)
    ranked = sorted(groups.items(), key=lambda item: (-(memory(item[1])[0] or 0), item[0]))
    named = dict(ranked[:number])
    rest = [tenant for _, members in ranked[number:] for tenant in members]
    if rest:
        named[OTHER] = [*named.get(OTHER, []), *rest]
    return named

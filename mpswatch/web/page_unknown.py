"""Everything that is unknown now, each with where and why: the page hides no gap."""

from __future__ import annotations

from collections.abc import Iterator

from mpswatch.documents import PollSnapshot
from mpswatch.evidence.quantities import WORDS
from mpswatch.latest import View


def unknowns(view: View) -> list[tuple[str, str, str]]:
    """Give (what, where, reason): what shares place and reason shares a line."""
    found: dict[tuple[str, str], list[str]] = {}
    for what, where, reason in dict.fromkeys([*_poll(view), *_sweeps(view), *_interferences(view)]):
        found.setdefault((where, reason), []).append(what)
    return [(", ".join(whats), where, reason) for (where, reason), whats in found.items()]


def _poll(view: View) -> Iterator[tuple[str, str, str]]:
    if view.poll is None:
        yield "everything a poll sees", view.host, str(view.poll_unknown or "no_poll_yet")
        return
    for (source, daemon), health in sorted(view.sources.items()):
        if health.success is not True:
            yield f"answers of {source}", daemon or view.host, str(health.reason or "source_failed")
    yield from _daemons(view.poll)
    yield from _gpus(view.poll)
    yield from _tenants(view.poll)


def _daemons(poll: PollSnapshot) -> Iterator[tuple[str, str, str]]:
    for look in poll.daemons:
        if look.up is None:
            yield "whether the control daemon is up", look.name, str(look.up_reason or "source_failed")
        if look.servers.value is None:
            yield "MPS servers and their clients", look.name, str(look.servers.unknown_reason)
        yield from ((field, look.name, str(reason)) for field, reason in sorted(look.unknown.items()))
        for server in look.servers.value or ():
            where = f"{look.name}, server {server.pid}"
            yield from ((field, where, str(reason)) for field, reason in sorted(server.unknown.items()))


def _gpus(poll: PollSnapshot) -> Iterator[tuple[str, str, str]]:
    if poll.gpus.value is None:
        yield "GPUs", poll.host, str(poll.gpus.unknown_reason)
    for gpu in poll.gpus.value or ():
        if gpu.processes.value is None:
            yield "processes", gpu.gpu.uuid, str(gpu.processes.unknown_reason)
        yield from ((field, gpu.gpu.uuid, str(reason)) for field, reason in sorted(gpu.gpu.unknown.items()))
        yield from ((field, gpu.gpu.uuid, str(reason)) for field, reason in sorted(gpu.conditions.unknown.items()))


def _tenants(poll: PollSnapshot) -> Iterator[tuple[str, str, str]]:
    if poll.tenants.value is None:
        yield "tenants", poll.host, str(poll.tenants.unknown_reason)
    yield from (("foreign tenants", uuid, str(reason)) for uuid, reason in sorted(poll.foreign_unknown.items()))
    for tenant in poll.tenants.value or ():
        where = f"{tenant.kind} pid {tenant.pid}"
        if tenant.kind == "unresolved":
            yield "who it is", where, "identity_ambiguous"
        yield from ((field, where, str(reason)) for field, reason in sorted(tenant.unknown.items()))


def _sweeps(view: View) -> Iterator[tuple[str, str, str]]:
    for target in view.to_measure:
        gpu = "-".join(target.gpu_uuid.split("-")[:2]) or "GPU unknown"
        where = f"{target.daemon}, {gpu}, {target.plan}"
        health = view.sweeps.get(target)
        if health is None or health.document is None:
            yield "throughput", where, "never_seen" if health is None else "stale"
            continue
        for cell in health.document.cells:
            if cell.unknown_reason is not None:
                yield f"throughput at {cell.cap} %", where, cell.unknown_reason
            yield from (
                (f"{field} at {cell.cap} %", where, str(reason)) for field, reason in sorted(cell.unknown.items())
            )
        look = view.history.get(target)
        if look is None:
            yield "how the run stands against earlier ones", where, "not_recorded"
            continue
        for cap in look.caps:
            if cap.standing == "unknown":
                what = f"history at {cap.cap} %, {WORDS[cap.quantity]}"
                yield what, where, f"{cap.unknown_reason}, {cap.runs} earlier runs"


def _interferences(view: View) -> Iterator[tuple[str, str, str]]:
    for (daemon, uuid), health in sorted(view.interferences.items()):
        where = f"{daemon}, {'-'.join(uuid.split('-')[:2]) or 'GPU unknown'}, interference"
        if health.document is None:
            yield "what neighbours cost", where, "stale"
            continue
        for cell in (*health.document.solo, *health.document.pairs):
            if cell.unknown_reason is None:
                continue
            beside = "alone" if cell.aggressor_cap is None else f"beside {cell.aggressor_kind} {cell.aggressor_cap} %"
            yield f"{cell.victim_kind} {cell.victim_cap} % {beside}", where, cell.unknown_reason

"""Tenants in words, for the page: what they were expected to be, where they run, and who started them."""

from __future__ import annotations

from collections.abc import Iterator

from mpswatch.documents import DaemonLook, PollSnapshot, Tenant
from mpswatch.markup.html import Markup, tag


def standing(tenant: Tenant) -> Markup | None:
    """That it has escaped, or is welcome; None where nothing was said of it."""
    if tenant.kind == "foreign" and tenant.expectations:
        return tag("span", f"escaped: expected under MPS as {', '.join(tenant.expectations)}", class_="wrong")
    if tenant.welcome is not None:
        return tag("span", f"welcome as {tenant.welcome}", class_="soft")
    if tenant.expectations:
        return tag("span", ", ".join(tenant.expectations), class_="soft")
    return None


def where(tenant: Tenant) -> str:
    """Pod, container, unit and job."""
    who = tenant.identity
    if who is None:
        return f"unknown: {tenant.unknown.get('identity', 'not_recorded')}"
    pod = f"{who.pod_namespace or '?'}/{who.pod_name or who.pod_uid}" if who.pod_uid or who.pod_name else None
    container = who.container_name or (who.container_id or "")[:12] or None
    job = f"Slurm job {who.slurm_job}" if who.slurm_job is not None else None
    return ", ".join(word for word in (pod, container, who.unit, job) if word)


def whose(tenant: Tenant) -> tuple[str, str]:
    """User and command line: for those who gave the password."""
    who = tenant.identity
    uid = "unknown" if tenant.uid is None else str(tenant.uid)
    user = f"{who.user} ({uid})" if who is not None and who.user else uid
    return user, (who.command_line if who is not None else None) or "unknown"


def tiles(snapshot: PollSnapshot | None) -> Iterator[tuple[object, object]]:
    """The state of each expected service, and of servers that somebody else waits for."""
    if snapshot is None:
        return
    for look in snapshot.daemons:
        if _is_waited_for(look):
            text = "a client of another user waits: the server will be shut down at its first idle moment"
            yield f"MPS {look.name}", tag("span", text, class_="wrong")
    for expected in snapshot.expectations:
        if expected.minimum is None:
            continue
        text = f"{expected.managed} managed of at least {expected.minimum}"
        if expected.unknown_reason is not None:
            text += f" (not all is known: {expected.unknown_reason})"
        if expected.escaped:
            text += f", {expected.escaped} escaped: on the GPU outside MPS"
        good = expected.managed >= expected.minimum and not expected.escaped
        style = "wrong" if expected.escaped else "good" if good else "odd"
        yield f"Service {expected.name}", tag("span", text, class_=style)


def _is_waited_for(look: DaemonLook) -> bool:
    return look.waiting is not None and (bool(look.waiting.clients) or look.waiting.shutdown_armed)

"""Tenants in words, for the page: what they were expected to be, where they run, and who started them."""

from __future__ import annotations

from collections.abc import Iterator

from mpswatch.documents import DaemonLook, PollSnapshot, Tenant
from mpswatch.latest import View
from mpswatch.markup.html import Markup, moment, table, tag

MIB = 1 << 20


def section(view: View, kind: str, *, private: bool) -> Markup:
    """Write who is `foreign` or `managed`; users and command lines only where `private`."""
    title = "Foreign: on the GPU outside MPS" if kind == "foreign" else "Managed by MPS"
    snapshot = view.poll
    found = snapshot.tenants.value if snapshot is not None else None
    if snapshot is None or found is None:
        reason = view.poll_unknown if snapshot is None else snapshot.tenants.unknown_reason
        return tag("section", tag("h2", title), tag("p", f"unknown: {reason}", class_="odd"), class_="half")
    hidden = [
        tag("p", f"On {_short(uuid)} unknown: {reason}", class_="odd")
        for uuid, reason in sorted(snapshot.foreign_unknown.items())
        if kind == "foreign"
    ]
    heads = ["process", "where", "pid", "GPU", "memory, MiB", "seen since"]
    if private:
        heads += ["user", "command line"]
    rows = [
        [
            tag(
                "span",
                tenant.process_name or f"unknown: {tenant.unknown.get('process_name', 'not_recorded')}",
                (" ", said) if (said := _standing(tenant)) is not None else "",
                class_="name",
            ),
            _where(tenant),
            tenant.pid,
            _short(tenant.gpu_uuid or ""),
            f"{tenant.used_memory_bytes // MIB}" if tenant.used_memory_bytes is not None else "unknown",
            moment(tenant.first_seen_at) if tenant.first_seen_at is not None else "unknown",
            *(_whose(tenant) if private else ()),
        ]
        for tenant in sorted(found, key=lambda tenant: -(tenant.used_memory_bytes or 0))
        if tenant.kind == kind or (kind == "foreign" and tenant.kind == "unresolved")
    ]
    shown = (
        table(f"{kind}: {len(rows)} process{'es' * (len(rows) != 1)}", heads, rows, numbers=(2, 4))
        if rows
        else tag("p", "none", class_="soft")
    )
    return tag("section", tag("h2", title), hidden, shown, class_="half")


def _standing(tenant: Tenant) -> Markup | None:
    """That it has escaped, or is welcome; None where nothing was said of it."""
    if tenant.kind == "foreign" and tenant.expectations:
        return tag("span", f"escaped: expected under MPS as {', '.join(tenant.expectations)}", class_="wrong")
    if tenant.welcome is not None:
        return tag("span", f"welcome as {tenant.welcome}", class_="soft")
    if tenant.expectations:
        return tag("span", ", ".join(tenant.expectations), class_="soft")
    return None


def _where(tenant: Tenant) -> str:
    """Pod, container, unit and job."""
    who = tenant.identity
    if who is None:
        return f"unknown: {tenant.unknown.get('identity', 'not_recorded')}"
    pod = f"{who.pod_namespace or '?'}/{who.pod_name or who.pod_uid}" if who.pod_uid or who.pod_name else None
    container = who.container_name or (who.container_id or "")[:12] or None
    job = f"Slurm job {who.slurm_job}" if who.slurm_job is not None else None
    return ", ".join(word for word in (pod, container, who.unit, job) if word)


def _whose(tenant: Tenant) -> tuple[str, str]:
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


def _short(uuid: str) -> str:
    return "-".join(uuid.split("-")[:2])

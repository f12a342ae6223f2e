"""The doctor's lines about tenants: who waits for another server, and which pattern matches whom. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpswatch.daemon.finding import Line
from mpswatch.documents import DaemonLook, ExpectationLook, PollSnapshot, Tenant
from mpswatch.expectations import DESKTOP_NAME, Expectations
from mpswatch.identity.sources import LabelSource

_LABELS = "run mpswatch as root, with the runtime's files at tenants.host_root; or use pod, namespace and container"
_HOST_ROOT = "in a container set tenants.host_root to where the host's files are mounted"


def waiting(look: DaemonLook) -> Iterator[Line]:
    """Whether a client of another uid waits for the server to end: the most dangerous silent state there is."""
    said = look.waiting
    if said is None:
        reason = look.unknown.get("waiting")
        if look.servers.value:
            yield Line(
                "note",
                "waiting clients",
                f"unknown: control.log of {look.name} is not being read ({reason})",
                "set daemons[].log_directory to the daemon's CUDA_MPS_LOG_DIRECTORY, readable for mpswatch",
            )
        return
    if not said.clients and not said.shutdown_armed:
        yield Line("good", "waiting clients", "nobody of another uid waits for the server to end")
        return
    who = ", ".join(f"pid {client.pid} of uid {client.uid}" for client in said.clients) or "a client, gone by now,"
    yield Line(
        "mend",
        "waiting clients",
        f"{who} waits: the daemon will shut the server down at its first idle moment, and lock its user out",
        "end that client, and restart the MPS daemon when the stack may stand still; for several users start it with"
        " -multiuser-server",
    )


def patterns(snapshot: PollSnapshot) -> Iterator[Line]:
    """What each configured pattern matches."""
    tenants = snapshot.tenants.value or ()
    for look in snapshot.expectations:
        if look.minimum is not None:
            matched = [tenant for tenant in tenants if look.name in tenant.expectations]
            yield _expected(look, matched)
        elif look.name != DESKTOP_NAME or look.matched:
            matched = [tenant for tenant in tenants if tenant.welcome == look.name]
            found = _listed(matched) or "nobody on the GPU now: a pattern that never matches is likely mistaken"
            yield Line("good" if matched else "note", f"welcome {look.name}", found)


def labels(what: Expectations, snapshot: PollSnapshot, sources: Sequence[LabelSource]) -> Iterator[Line]:
    """Whether patterns that ask for a label can match at all: where labels would be read, and who has none to show."""
    if not what.label_keys:
        return
    for source in sources:
        if source.fault is not None:
            yield Line("mend", "labels", f"{source.runtime} keeps them in {source.path}: {source.fault}", _LABELS)
        else:
            yield Line("good", "labels", f"{source.runtime}: {source.path} can be read")
    if not sources:
        yield Line("note", "labels", "no runtime's files are there: a pattern by label matches nobody", _HOST_ROOT)
    hidden = [tenant for tenant in snapshot.tenants.value or () if tenant.undecided]
    if hidden:
        names = ", ".join(sorted({name for tenant in hidden for name in tenant.undecided}))
        yield Line("mend", "labels", f"{names} can never match {_listed(hidden)}: their labels are not known", _LABELS)


def _expected(look: ExpectationLook, matched: list[Tenant]) -> Line:
    name = f"expected {look.name}"
    if look.unknown_reason is not None and not look.escaped:
        return Line("note", name, f"not all is known ({look.unknown_reason}); matches {_listed(matched) or 'nobody'}")
    if look.escaped:
        return Line(
            "mend",
            name,
            f"{look.escaped} ESCAPED, on the GPU outside MPS; matches {_listed(matched)}",
            "start it with the stack's CUDA_MPS_PIPE_DIRECTORY, as the server's user, after the daemon",
        )
    if not look.matched:
        return Line(
            "mend", name, "matches nobody on the GPU", "start the service, or correct tenants.expected (mpswatch poll)"
        )
    enough = look.managed >= (look.minimum or 0)
    counts = f"{look.managed} managed, at least {look.minimum} expected"
    return Line("good" if enough else "mend", name, f"{counts}; matches {_listed(matched)}")


def _listed(matched: list[Tenant]) -> str:
    """Pids with kinds; a process on two GPUs once."""
    shown = {tenant.pid: f"{tenant.pid} ({tenant.kind}, {tenant.process_name or 'name unknown'})" for tenant in matched}
    words = list(shown.values())
    return ", ".join(words[:8]) + (f" and {len(words) - 8} more" if len(words) > 8 else "")

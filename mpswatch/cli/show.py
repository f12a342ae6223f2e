"""Tables and pictures. Names that tenants chose go in as plain text: nothing in them is markup or colour."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mpswatch.cli.tables import narrow, print_whole
from mpswatch.documents import (
    Cell,
    DaemonLook,
    ExpectationLook,
    PollSnapshot,
    SweepDocument,
    Tenant,
    TenantIdentity,
)
from mpswatch.evidence.limits import given
from mpswatch.evidence.partitions import partitioned
from mpswatch.evidence.quantities import WORDS, Reading, quantities_of, readings
from mpswatch.evidence.verdict import doubts
from mpswatch.names import printable

BAR = 40

VERDICT_STYLES = {"not_enforced": "red", "unknown": "yellow"}


def console(*, to_stderr: bool = False) -> Console:
    """A console that adds nothing of its own: no markup, no emoji, no guessed highlights."""
    return Console(file=sys.stderr if to_stderr else sys.stdout, markup=False, emoji=False, highlight=False)


def sweep(document: SweepDocument) -> Table:
    """A row for each quantity of each cap: burst and sustained are two, each with its own clock and power."""
    # without vertical lines, so that a thorough sweep's eight columns fit into 80
    table = Table(
        title=Text(_title(document)), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )
    quantities = quantities_of(document)
    one = WORDS[quantities[0]] if len(quantities) == 1 else None
    table.add_column("cap %", justify="right")
    if one is None:
        table.add_column("quantity")
    figures = ["TFLOPS", "95 %", "MHz", "W"] if one is None else [f"{one} TFLOPS", "MHz after", "W after"]
    for heading in (*figures, "SMs"):
        table.add_column(heading, justify="right", no_wrap=heading == "SMs")
    table.add_column("managed")
    table.add_column("verdict", min_width=8)
    for cell in document.cells:
        about = _about(cell)
        for number, reading in enumerate(readings(cell, quantities)):
            first = (cell.cap if number == 0 else "", "")
            row = [first, *_figures(reading, named=one is None), *(about if number == 0 else _BLANK)]
            table.add_row(*(Text(text, style=style) for text, style in row))
    return table


def _title(document: SweepDocument) -> str:
    gpu = document.gpu.name if document.gpu is not None else "GPU unknown"
    kind = "SIMULATED (rehearsal stack, no GPU was measured)  " if document.simulated else ""
    protocol = document.protocol
    when = (document.started_at or document.recorded_at).strftime("%Y-%m-%d %H:%M:%S UTC")
    return (
        f"{kind}{gpu} on {document.host}, {when}: {protocol.dtype} {protocol.op} {protocol.matrix_size}, "
        f"{protocol.iters} iterations, plan {protocol.plan}"
    )


_BLANK = [("", "")] * 3


def _figures(reading: Reading, *, named: bool) -> list[tuple[str, str]]:
    """TFLOPS, clock and power; `named` where the column's heading names no quantity: then with an interval too."""
    return [
        *([(reading.words, "")] if named else []),
        (_number(reading.tflops), "bold"),
        *([(_interval(reading), "")] if named else []),
        (_whole(reading.sm_clock_mhz), ""),
        (_whole(reading.power_watts), ""),
    ]


def _interval(reading: Reading) -> str:
    if reading.low is None or reading.high is None:
        return ""
    unsettled = " unsettled" if reading.settled is False else ""
    return f"{_number(reading.low)}-{_number(reading.high)}{unsettled}"


def _whole(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"


def _about(cell: Cell) -> list[tuple[str, str]]:
    """What is the same for each quantity of a cell: SMs seen and implied, membership, and the verdict, or why the cell
    is unknown."""
    expected = cell.sm_count_expected
    implied = int(expected.at_most) if expected is not None else "?"
    odd = "red" if cell.sm_count_as_expected is False else ""
    verdict = cell.verdict.verdict if cell.verdict is not None else ""
    return [
        (f"{cell.sm_count if cell.sm_count is not None else '?'}/{implied}", odd),
        ({True: "yes", False: "no", None: "?"}[cell.self_was_managed], ""),
        (f"unknown: {cell.unknown_reason}", "red")
        if cell.unknown_reason is not None
        else (verdict.replace("_", " "), VERDICT_STYLES.get(verdict, "")),
    ]


def _number(value: float | None) -> str:
    if value is None:
        return "?"
    return f"{value:.1f}" if 10 <= value < 1e6 else f"{value:.3g}"


def bars(document: SweepDocument) -> Iterable[str]:
    """TFLOPS by cap as bars, a picture for each quantity, in which its largest has the full width."""
    for quantity in quantities_of(document):
        found = [(cell.cap, reading.tflops) for cell in document.cells for reading in readings(cell, (quantity,))]
        most = max((tflops for _, tflops in found if tflops is not None), default=0.0)
        yield f"{WORDS[quantity]} TFLOPS"
        for cap, tflops in found:
            eighths = round(BAR * 8 * (tflops / most)) if tflops is not None and most else 0
            full, part = divmod(eighths, 8)
            bar = "█" * full + (" ▏▎▍▌▋▊▉"[part] if part else "")
            yield f"{cap:>6} % {bar:<{BAR}} {_number(tflops)}{'' if tflops is not None else ' unknown'}"


def print_sweep(document: SweepDocument, out: Console) -> None:
    out.print(sweep(document))
    for verdict, line in doubts(document.cells):
        out.print(Text(printable(line), style=VERDICT_STYLES[verdict]), soft_wrap=True)
    out.print()
    for line in bars(document):
        out.print(Text(line), soft_wrap=True)
    if document.partial_run_note is not None:
        out.print(Text(f"partial: {document.partial_run_note}", style="yellow"))


def print_poll(snapshot: PollSnapshot, out: Console) -> None:
    """Daemons and their servers, then who is on the GPU."""
    if snapshot.simulated:
        out.print(Text("SIMULATED: a rehearsal stack", style="bold"))
    for line in partitioned(snapshot):
        out.print(Text(line, style="yellow"), soft_wrap=True)
    for daemon in snapshot.daemons:
        _print_daemon(daemon, out)
    table = narrow()
    for heading in ("pid", "kind", "GPU", "memory MiB", "user", "where", "name"):
        right = heading in {"pid", "memory MiB"}
        table.add_column(heading, justify="right" if right else "left", no_wrap=right or heading == "GPU")
    if snapshot.tenants.value is None:
        out.print(Text(f"tenants unknown: {snapshot.tenants.unknown_reason}", style="red"))
        return
    for tenant in sorted(snapshot.tenants.value, key=lambda tenant: (tenant.kind, tenant.pid)):
        memory = str(tenant.used_memory_bytes >> 20) if tenant.used_memory_bytes is not None else "?"
        cells = (
            str(tenant.pid),
            _kind(tenant),
            (tenant.gpu_uuid or "?")[:12],
            memory,
            (tenant.identity.user if tenant.identity is not None else None) or _or(tenant.uid),
            _where(tenant.identity),
            tenant.process_name or "?",
        )
        style = {"foreign": "yellow", "unresolved": "red"}.get(tenant.kind, "")
        style = "bold red" if _kind(tenant).startswith("escaped") else "" if tenant.welcome else style
        table.add_row(*(Text(cell, style=style) for cell in cells))
    print_whole(table, out)
    for look in snapshot.expectations:
        if look.minimum is not None:
            out.print(Text(*_expected(look)), soft_wrap=True)


def _print_daemon(daemon: DaemonLook, out: Console) -> None:
    if daemon.up is not True:
        out.print(Text(f"{daemon.name}: {daemon.up_reason or 'unknown'}", style="red"))
    for server in daemon.servers.value or ():
        clients = len(server.clients) if server.clients is not None else "?"
        limit = f" of {server.context_limit}" if server.context_limit is not None else ""
        state = server.server_state or "state unknown"
        out.print(Text(f"{daemon.name}: server {server.pid}, uid {_or(server.uid)}, {state}, {clients}{limit} clients"))
    for line in _limits(daemon):
        out.print(Text(line, style="yellow"), soft_wrap=True)
    for line in _waiting(daemon):
        out.print(Text(line, style="bold red"), soft_wrap=True)


def _limits(daemon: DaemonLook) -> Iterable[str]:
    asked = f" at {daemon.limits_asked_at:%H:%M:%S} UTC" if daemon.limits_asked_at is not None else ""
    for clients_of, at_most in given(daemon):
        what = ", ".join(at_most)
        yield f"{daemon.name}: each client of {clients_of} gets at most {what} ({daemon.servers.source}{asked})"


def _waiting(daemon: DaemonLook) -> Iterable[str]:
    waiting = daemon.waiting
    if waiting is None or not (waiting.clients or waiting.shutdown_armed):
        return
    who = ", ".join(f"pid {client.pid} of uid {client.uid}" for client in waiting.clients) or "a client that is gone"
    yield f"{daemon.name}: {who} waits for the server to be shut down: it will be, at its first idle moment"


def _kind(tenant: Tenant) -> str:
    if tenant.kind == "foreign" and tenant.expectations:
        return f"escaped ({', '.join(tenant.expectations)})"
    return f"welcome ({tenant.welcome})" if tenant.welcome is not None else tenant.kind


def _where(identity: TenantIdentity | None) -> str:
    """The pod, container or unit, and the Slurm job, in a few words."""
    if identity is None:
        return "?"
    container = identity.container_name or (identity.container_id or "")[:12]
    if identity.pod_name or identity.pod_uid:
        words = [f"{identity.pod_namespace or '?'}/{identity.pod_name or identity.pod_uid}", container]
    elif container:
        words = [f"{identity.container_runtime or 'container'} {container}", identity.unit or ""]
    else:
        words = [identity.unit or ""]
    if identity.slurm_job is not None:
        words.append(f"job {identity.slurm_job}")
    return " ".join(word for word in words if word)


def _expected(look: ExpectationLook) -> tuple[str, str]:
    """A line about one expected service, and its style."""
    text = f"{look.name}: {look.managed} managed of at least {look.minimum} expected"
    if look.escaped:
        return f"{text}, {look.escaped} ESCAPED (on the GPU outside MPS)", "bold red"
    if look.unknown_reason is not None:
        return f"{text} (not all is known: {look.unknown_reason})", "yellow"
    return text, "" if look.managed >= (look.minimum or 0) else "yellow"


def _or(value: object) -> str:
    return "?" if value is None else str(value)

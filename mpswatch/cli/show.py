"""Tables and pictures. Names that tenants chose go in as plain text: nothing in them is markup or colour."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mpswatch.documents import Cell, PollSnapshot, SweepDocument

BAR = 40


def console(*, to_stderr: bool = False) -> Console:
    """A console that adds nothing of its own: no markup, no emoji, no guessed highlights."""
    return Console(file=sys.stderr if to_stderr else sys.stdout, markup=False, emoji=False, highlight=False)


def sweep(document: SweepDocument) -> Table:
    """One row a cap."""
    table = Table(title=Text(_title(document)), title_justify="left")
    for heading, right in (("cap %", True), ("TFLOPS", True), ("of most", True), ("SMs", True), ("implied", True)):
        table.add_column(heading, justify="right" if right else "left")
    table.add_column("managed")
    table.add_column("state")
    most = max((cell.tflops for cell in document.cells if cell.tflops is not None), default=None)
    for cell in document.cells:
        table.add_row(*(Text(text, style=style) for text, style in _row(cell, most)))
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


def _row(cell: Cell, most: float | None) -> list[tuple[str, str]]:
    expected = cell.sm_count_expected
    implied = f"≤ {expected.at_most:g}" if expected is not None else "?"
    odd = "red" if cell.sm_count_as_expected is False else ""
    state = cell.state if cell.unknown_reason is None else f"unknown: {cell.unknown_reason}"
    return [
        (cell.cap, ""),
        (_number(cell.tflops), "bold"),
        (f"{cell.tflops / most:.0%}" if cell.tflops is not None and most else "", ""),
        (str(cell.sm_count) if cell.sm_count is not None else "?", odd),
        (implied, odd),
        ({True: "yes", False: "no", None: "?"}[cell.self_was_managed], ""),
        (state, "red" if cell.state == "unknown" else ""),
    ]


def _number(value: float | None) -> str:
    if value is None:
        return "?"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def bars(document: SweepDocument) -> Iterable[str]:
    """TFLOPS by cap as bars, the largest the full width."""
    most = max((cell.tflops for cell in document.cells if cell.tflops is not None), default=0.0)
    for cell in document.cells:
        eighths = round(BAR * 8 * cell.tflops / most) if cell.tflops is not None and most else 0
        full, part = divmod(eighths, 8)
        bar = "█" * full + (" ▏▎▍▌▋▊▉"[part] if part else "")
        yield f"{cell.cap:>6} % {bar:<{BAR}} {_number(cell.tflops)}{'' if cell.tflops is not None else ' unknown'}"


def print_sweep(document: SweepDocument, out: Console) -> None:
    out.print(sweep(document))
    out.print()
    for line in bars(document):
        out.print(Text(line), soft_wrap=True)
    if document.partial_run_note is not None:
        out.print(Text(f"partial: {document.partial_run_note}", style="yellow"))


def print_poll(snapshot: PollSnapshot, out: Console) -> None:
    """Daemons and their servers, then who is on the GPU."""
    if snapshot.simulated:
        out.print(Text("SIMULATED: a rehearsal stack", style="bold"))
    for daemon in snapshot.daemons:
        if daemon.up is not True:
            out.print(Text(f"{daemon.name}: {daemon.up_reason or 'unknown'}", style="red"))
        for server in daemon.servers.value or ():
            clients = len(server.clients) if server.clients is not None else "?"
            limit = f" of {server.context_limit}" if server.context_limit is not None else ""
            state = server.server_state or "state unknown"
            out.print(
                Text(f"{daemon.name}: server {server.pid}, uid {_or(server.uid)}, {state}, {clients}{limit} clients")
            )
    table = Table()
    for heading in ("pid", "kind", "GPU", "memory MiB", "uid", "name"):
        table.add_column(heading, justify="right" if heading in {"pid", "memory MiB", "uid"} else "left")
    if snapshot.tenants.value is None:
        out.print(Text(f"tenants unknown: {snapshot.tenants.unknown_reason}", style="red"))
        return
    for tenant in sorted(snapshot.tenants.value, key=lambda tenant: (tenant.kind, tenant.pid)):
        memory = str(tenant.used_memory_bytes >> 20) if tenant.used_memory_bytes is not None else "?"
        cells = (
            str(tenant.pid),
            tenant.kind,
            (tenant.gpu_uuid or "?")[:12],
            memory,
            _or(tenant.uid),
            tenant.process_name or "?",
        )
        style = {"foreign": "yellow", "unresolved": "red"}.get(tenant.kind, "")
        table.add_row(*(Text(cell, style=style) for cell in cells))
    out.print(table)


def _or(value: object) -> str:
    return "?" if value is None else str(value)

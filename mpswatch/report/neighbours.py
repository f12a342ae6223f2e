"""What neighbours cost, in a report: each interference measurement of the period by itself, never averaged."""

from __future__ import annotations

from mpswatch.documents import InterferenceDocument
from mpswatch.evidence.matrices import matrices
from mpswatch.markup.html import Markup, moment, tag
from mpswatch.markup.matrix import matrix_table
from mpswatch.report.gathering import InterferenceReport


def interference(one: InterferenceReport) -> Markup:
    """Write its section, the newest measurement first."""
    left = (
        tag("p", f"{one.left_out} older measurements of the period are left out.", class_="odd")
        if one.left_out
        else Markup()
    )
    how = (
        "The share of its own rate that the victim (row) loses beside the aggressor (column), both under sustained "
        "load, with its 95 % interval. Alone is beside the stack as it is."
    )
    where = f"{one.gpu_uuid or 'GPU not recorded'} under {one.daemon} on {one.host}"
    measured = [_measurement(document) for document in one.documents]
    return tag("section", tag("h2", f"Interference: {where}"), tag("p", how, class_="soft"), measured, left)


def _measurement(document: InterferenceDocument) -> Markup:
    state = "SIMULATED" if document.simulated else "measured"
    outcome = "complete" if document.complete else f"partial: {document.partial_run_note}"
    tables = [matrix_table(matrix, of=document.run_id) for matrix in matrices(document)]
    return Markup(
        tag("h3", f"{document.run_id}, finished ", moment(document.finished_at), f", {outcome}, {state}")
        + tag("div", tables, class_="beside")
    )

"""The vocabulary keeps its promises: the reference document is ours to read, and no number lacks its state."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import jsonschema
import msgspec
import pytest

from mpswatch.documents import (
    Cell,
    CellTimings,
    DocumentError,
    Envelope,
    Event,
    HistoryLook,
    InterferenceDocument,
    Pieces,
    PollSnapshot,
    ReferenceTenant,
    SmExpectation,
    SweepDocument,
    from_json,
    json_schema,
    to_json,
)

REFERENCE = Path(__file__).parents[1] / "reference" / "mps-cap-sweep.v1.json"
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def a_cell(**changes: object) -> Cell:
    facts: dict[str, object] = {
        "cap": "50",
        "iters": 80,
        "size": 4096,
        "seconds": 0.025,
        "tflops": 439.8,
        "client_reported_pid": 7,
        "client_pid_is_namespaced": False,
        "mps_clients_joined_during_cell": (7,),
        "self_was_managed": True,
        "managed_clients_after_cell": (),
    }
    return Cell(**{**facts, **changes})  # type: ignore[arg-type] # checked by the struct itself


def test_the_reference_document_is_read_and_written_back_with_every_key_and_value():
    original = json.loads(REFERENCE.read_bytes())
    ours = json.loads(to_json(from_json(REFERENCE.read_bytes(), SweepDocument)))

    def holds(reference: object, written: object, place: str) -> None:
        if isinstance(reference, dict):
            assert isinstance(written, dict), place
            for key, value in reference.items():
                assert key in written, f"{place}.{key}"
                holds(value, written[key], f"{place}.{key}")
        elif isinstance(reference, list):
            assert isinstance(written, list), place
            assert len(reference) == len(written), place
            for number, (left, right) in enumerate(zip(reference, written, strict=True)):
                holds(left, right, f"{place}[{number}]")
        else:
            assert reference == written, place

    holds(original, ours, "$")


def test_the_reference_document_validates_against_the_published_schema():
    jsonschema.Draft202012Validator(json_schema(SweepDocument)).validate(json.loads(REFERENCE.read_bytes()))


def test_published_schemas_name_types_by_where_they_are_imported_from_not_by_the_file_that_holds_them():
    definitions = json_schema(PollSnapshot)["$defs"]
    assert {name for name in definitions if "mpswatch" in name} == {
        "Envelope_tuple_mpswatch.documents.GpuLook__...__",
        "Envelope_tuple_mpswatch.documents.GpuProcess__...__",
        "Envelope_tuple_mpswatch.documents.ServerLook__...__",
        "Envelope_tuple_mpswatch.documents.Tenant__...__",
    }
    assert definitions["Envelope_tuple_mpswatch.documents.Tenant__...__"]["title"] == (
        "Envelope[tuple[mpswatch.documents.Tenant, ...]]"
    )


@pytest.mark.parametrize("kind", [SweepDocument, PollSnapshot])
def test_published_schemas_are_schemas(kind):
    jsonschema.Draft202012Validator.check_schema(json_schema(kind))


@pytest.mark.parametrize(
    ("value", "state", "reason"),
    [(None, "measured", None), (3, "unknown", "stale"), (None, "unknown", None), (3, "measured", "stale")],
)
def test_an_envelope_is_a_value_or_a_reason_never_both_or_neither(value, state, reason):
    with pytest.raises(ValueError, match="does not go with"):
        Envelope(value=value, state=state, source="x", measured_at=NOW, evidence={}, unknown_reason=reason)


def test_a_throughput_without_membership_is_not_a_cell():
    with pytest.raises(ValueError, match="seen in the daemon's own list"):
        a_cell(self_was_managed=False)


def test_an_unknown_cell_has_no_number():
    with pytest.raises(ValueError, match="does not go with"):
        a_cell(state="unknown", unknown_reason="deadline")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema_version": 2}, "schema_version"),
        ({"complete_sweep": False}, "partial_run_note"),
        ({"simulated": True}, "simulated"),
    ],
)
def test_a_document_that_contradicts_itself_is_refused_by_name(changes, message):
    document = json.loads(REFERENCE.read_bytes()) | changes
    with pytest.raises(DocumentError, match=message):
        from_json(json.dumps(document).encode(), SweepDocument)


@pytest.mark.parametrize("end", [0, 1, 100, 2000, -2])
def test_a_cut_document_is_a_named_error(end):
    with pytest.raises(DocumentError):
        from_json(REFERENCE.read_bytes()[:end], SweepDocument)


def test_a_fault_is_named_with_its_place():
    document = json.loads(REFERENCE.read_bytes())
    document["cells"][2]["seconds"] = "fast"
    with pytest.raises(DocumentError, match=r"\$\.cells\[2\]\.seconds"):
        from_json(json.dumps(document).encode(), SweepDocument)


def test_documents_cannot_be_changed():
    with pytest.raises(AttributeError):
        a_cell().tflops = 1.0  # type: ignore[misc] # that is the point


def test_nothing_but_finite_numbers_is_read():
    with pytest.raises(DocumentError):
        from_json(b'{"cap": NaN}', Cell)
    assert msgspec.json.encode(float("inf")) == b"null"


IMPOSSIBLE = [
    ("seconds", -1), ("seconds", 0), ("tflops", -1), ("tflops", 0), ("tflops", 1e308), ("sm_count", 10**30),
    ("sm_count", -1), ("sm_count", 2**32), ("client_pid", 2**63), ("iters", -1), ("samples", [0.001, -1]),
    ("managed_clients_after_cell", [-7]), ("cap", "500"), ("cap", "-5"), ("cap", "NaN"),
    ("pieces.gap_ratio", 1.5), ("timings.fork", -1), ("conditions_after.utilization_ratio", 50),
    ("conditions_after.temperature_celsius", -300), ("conditions_after.power_watts", 1e300),
    ("conditions_after.memory_used_bytes", 2**63), ("tenants_present.0.used_memory_mb", -1),
    ("sustained.confidence", 95), ("sustained.interval_low", -1), ("sm_count_expected.total", 10**30),
]  # fmt: skip


@pytest.fixture
def full(facts):
    """A run whose one cell has a number in every place, as plain data."""
    cell = facts.cell(
        "50",
        sm_count_expected=SmExpectation(total=132, at_most=66.0, above=58.0),
        pieces=Pieces(count=5, in_flight_most=2, longest_unwatched=0.01, gap_ratio=0.1, host_bound=False),
        timings=CellTimings(fork=0.1),
        conditions_after=facts.conditions(utilization_ratio=0.5, temperature_celsius=40.0, power_watts=300.0),
        tenants_present=(ReferenceTenant(pid=900, used_memory_mb=5, process_name="x"),),
        sustained=facts.figure(429.0, clock=1900.0, power=690.0),
    )
    return json.loads(to_json(facts.sweep(cells=(cell,))))


def put(document, place, number):
    *way, last = (int(step) if step.isdigit() else step for step in place.split("."))
    below = document
    for step in way:
        below = below[step]
    assert last in below
    below[last] = number


@pytest.mark.parametrize(("place", "number"), IMPOSSIBLE)
def test_an_impossible_number_is_no_measurement_and_its_place_is_named(full, place, number):
    from_json(json.dumps(full).encode(), SweepDocument)
    put(full["cells"][0], place, number)
    named = r"\S*".join(re.escape(step) for step in place.split(".") if not step.isdigit())
    with pytest.raises(DocumentError, match=rf"\$\.cells\[0\]\.{named}"):
        from_json(json.dumps(full).encode(), SweepDocument)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(json_schema(SweepDocument)).validate(full)


@pytest.mark.parametrize(
    ("place", "number"),
    [
        ("protocol.iters", 10**30), ("tflops_by_cap.value", {"50": -1}), ("managed_clients_before.value", [-1]),
        ("mps.server_start_ticks", 2**63), ("mps.default_active_thread_percentage", 101), ("gpu.sm_count", 10**30),
    ],
)  # fmt: skip
def test_a_run_with_a_number_that_no_row_holds_is_no_run(full, place, number):
    put(full, place, number)
    with pytest.raises(DocumentError):
        from_json(json.dumps(full).encode(), SweepDocument)


def test_no_number_in_a_published_schema_is_without_bounds():
    def unbounded(node, place):
        if isinstance(node, dict):
            if node.get("type") in {"integer", "number"} and not {"maximum", "enum"} & node.keys():
                yield place
            for key, value in node.items():
                yield from unbounded(value, f"{place}.{key}")
        elif isinstance(node, list):
            for item in node:
                yield from unbounded(item, place)

    kinds = (SweepDocument, PollSnapshot, InterferenceDocument, HistoryLook, Event)
    found = {place.rsplit(".", 1)[-1] for kind in kinds for place in unbounded(json_schema(kind), kind.__name__)}
    assert found == {"schema_version"}  # which is 1, or the document is refused

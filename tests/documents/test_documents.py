"""The vocabulary keeps its promises: the reference document is ours to read, and no number lacks its state."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import jsonschema
import msgspec
import pytest

from mpswatch.documents import (
    Cell,
    DocumentError,
    Envelope,
    PollSnapshot,
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

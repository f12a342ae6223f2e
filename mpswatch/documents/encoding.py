"""Documents as JSON, in and out, and their JSON Schemas."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from mpswatch.documents.envelope import Document


class DocumentError(ValueError):
    """Bytes that are not the document they should be; the message names the place."""


_MODULE_IN_NAME = re.compile(rb"mpswatch\.documents\.[a-z_]+\.(?=[A-Z])")
_BOUNDS_IN_NAME = re.compile(
    rb"typing\.Annotated_(int|float)__msgspec\.Meta_g[et]_[0-9.e+-]+__le_[0-9.e+-]+__"
    rb"|typing\.Annotated\[(int|float), msgspec\.Meta\([^()]*\)\]"
)
_encoder = msgspec.json.Encoder(order="deterministic", decimal_format="string")

D = TypeVar("D", bound=Document)


def to_json(document: Document, *, indent: int = 0) -> bytes:
    """`document` as UTF-8 JSON; `indent` spaces a level, 0 for one line."""
    encoded = _encoder.encode(document)
    return msgspec.json.format(encoded, indent=indent) if indent else encoded


def from_json(data: bytes, kind: type[D]) -> D:
    """Read a document of `kind`, or raise `DocumentError` with the place of the fault."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(str(error)) from None


def json_schema(kind: type[Document]) -> dict[str, Any]:
    """The published JSON Schema (draft 2020-12) of a document type.

    msgspec builds the name of a generic's definition from the module that holds the type inside; what is published
    names `mpswatch.documents` alone, so that moving a class from one of its modules to another changes no schema, and
    leaves the bounds of numbers out of names: they are in the definitions.
    """
    raw = _MODULE_IN_NAME.sub(rb"mpswatch.documents.", msgspec.json.encode(msgspec.json.schema(kind)))
    schema: dict[str, Any] = msgspec.json.decode(_BOUNDS_IN_NAME.sub(rb"\1\2", raw))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}

"""nvidia-smi's XML report, read with suspicion: no entities, no numbers from words, `[N/A]` is a reason.

tests/recordings: nvidia-smi-q-x.two-managed-one-foreign.xml
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mpswatch.documents import Reason
from mpswatch.gpu.source import GpuError

if TYPE_CHECKING:
    import xml.etree.ElementTree as ET

MIB = 1 << 20

_NUMBER = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?([A-Za-z%]*)")

# C0 controls that XML 1.0 does not allow: a process's name can hold them
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")

_WORDS = {
    "N/A": Reason.NOT_SUPPORTED,
    "Not Supported": Reason.NOT_SUPPORTED,
    "Requested functionality has been deprecated": Reason.NOT_SUPPORTED,
    "Insufficient Permissions": Reason.INSUFFICIENT_PERMISSIONS,
    "No Permissions": Reason.INSUFFICIENT_PERMISSIONS,
    "GPU is lost": Reason.GPU_LOST,
    "GPU requires reset": Reason.GPU_LOST,
    "Unknown Error": Reason.NVIDIA_SMI_ERROR,
    "ERR!": Reason.NVIDIA_SMI_ERROR,
}


class ReadingError(GpuError):
    """One field of the report holds no value, and `reason` says why."""


def parse(data: bytes) -> ET.Element:
    """The report's root element, or `GpuError` (`nvidia_smi_nonsense`)."""
    import xml.etree.ElementTree as ET  # noqa: PLC0415 - half a megabyte that NVML does without
    from xml.parsers import expat  # noqa: PLC0415

    text = _NO_XML.sub("\ufffd", data.decode("utf-8", "replace"))
    builder = ET.TreeBuilder()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = lambda name, attributes: builder.start(name, attributes) and None
    parser.EndElementHandler = lambda name: builder.end(name) and None
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = _refuse_entity
    parser.ExternalEntityRefHandler = None
    try:
        parser.Parse(text, True)  # noqa: FBT003 -- expat takes no keywords
        root = builder.close()
    except (expat.ExpatError, AssertionError, ValueError) as error:
        raise GpuError(Reason.NVIDIA_SMI_NONSENSE, f"nvidia-smi printed no XML report: {error}") from None
    if root.tag != "nvidia_smi_log":
        raise GpuError(Reason.NVIDIA_SMI_NONSENSE, f"nvidia-smi printed a {root.tag!r}, not a report")
    return root


def _refuse_entity(name: str, *_: object) -> None:
    raise ValueError(f"it declares an entity, {name!r}")


def text(element: ET.Element, path: str) -> str:
    """The words at `path`. Raises `ReadingError` for an absent field and for a word that means "unknown"."""
    found = element.find(path)
    words = "" if found is None or found.text is None else found.text.strip()
    if not words:
        raise ReadingError(Reason.NOT_SUPPORTED, f"the report has no {path}")
    reason = _WORDS.get(words.removeprefix("[").removesuffix("]"))
    if reason is not None:
        raise ReadingError(reason, f"{path}: {words}")
    return words


def number(element: ET.Element, path: str, unit: str) -> float:
    """The number at `path`, which must have `unit`."""
    words = text(element, path)
    match = _NUMBER.fullmatch(words)
    if match is None or match.group(2) != unit:
        raise ReadingError(Reason.NVIDIA_SMI_NONSENSE, f"{path}: {words[:40]!r} is no number of {unit}")
    return float(match.group(1))


def whole(element: ET.Element, path: str, unit: str) -> int:
    """The whole number at `path`, which must have `unit`."""
    value = number(element, path, unit)
    if not value.is_integer():
        raise ReadingError(Reason.NVIDIA_SMI_NONSENSE, f"{path}: {value} is no whole number")
    return int(value)


def mebibytes(element: ET.Element, path: str) -> int:
    """The bytes at `path`, which nvidia-smi writes in MiB."""
    return whole(element, path, "MiB") * MIB

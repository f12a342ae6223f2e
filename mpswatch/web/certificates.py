"""What is wrong with PEM data that OpenSSL refused: it says "PEM lib" of everything, and never which file."""

from __future__ import annotations

import re
import ssl

from mpswatch.web.settings import Pem

_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
_BEGIN = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----")


def certificate_fault(pem: Pem) -> str | None:
    """Say in a sentence with the data's name what keeps them from being certificates; None if nothing is seen."""
    return _no_block(pem, b"CERTIFICATE", "certificate") or _damaged_certificate(pem)


def key_fault(pem: Pem) -> str | None:
    """As `certificate_fault`, of a private key. A key that is broken inside its frame is told by its loading only."""
    missing = _no_block(pem, b"PRIVATE KEY", "private key")
    if missing is not None:
        return missing
    if b"-----BEGIN ENCRYPTED PRIVATE KEY-----" in pem.data or b"Proc-Type: 4,ENCRYPTED" in pem.data:
        return f"{pem.name} holds an encrypted key: mpswatch has nobody to ask for its password"
    return None


def said(error: Exception) -> str:
    """OpenSSL's reason in its own words, without the place in its source."""
    reason = getattr(error, "reason", None)
    if reason:
        return str(reason).lower().replace("_", " ")
    return "OpenSSL does not read it, and does not say why" if isinstance(error, ssl.SSLError) else str(error)


def _no_block(pem: Pem, kind: bytes, called: str) -> str | None:
    if not pem.data.strip():
        return f"{pem.name} is empty"
    begun = _BEGIN.findall(pem.data)
    if not begun:
        return f"{pem.name} holds no {called}: it is not PEM data"
    if not any(name.endswith(kind) for name in begun):
        others = ", ".join(sorted({name.decode() for name in begun}))
        return f"{pem.name} holds no {called}, but {others}"
    if not any(name.endswith(kind) for name in _BLOCK.findall(pem.data)):
        return f"{pem.name} breaks off: its {called} has no END line"
    return None


def _damaged_certificate(pem: Pem) -> str | None:
    blocks = [found for found in _BLOCK.finditer(pem.data) if found[1].endswith(b"CERTIFICATE")]
    for number, block in enumerate(blocks, start=1):
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=block[0].decode("ascii"))
        except (OSError, ValueError) as error:
            line = pem.data.count(b"\n", 0, block.start()) + 1
            why = f": {said(error)}" if getattr(error, "reason", None) else ""
            return f"{pem.name} holds a damaged certificate (number {number}, line {line}){why}"
    return None

"""TLS settings become a context; a verified client is held to the names it may have."""

from __future__ import annotations

import asyncio.sslproto
import contextlib
import os
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path

from mpswatch.web.certificates import certificate_fault, key_fault, said
from mpswatch.web.settings import Pem, TlsSettings, WebFileError

_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}


READ_BYTES = 16 << 10
"""What a connection reads at once: a TLS record; requests are far smaller."""


def small_connections() -> None:
    """Let each TLS connection reserve no more than a request needs.

    asyncio reserves 256 KiB and touches them: 128 MiB for 500 idle connections. It has no parameter for it, only this
    attribute (Python 3.11 to 3.14).
    """
    asyncio.sslproto.SSLProtocol.max_size = READ_BYTES


def context_of(settings: TlsSettings, origin: Path) -> ssl.SSLContext:
    """Make the server's context, or raise `WebFileError` (of the file `origin`) when a certificate does not serve."""
    small_connections()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.min_version]
    context.maximum_version = _VERSIONS[settings.max_version]
    context.set_alpn_protocols(["http/1.1"])
    if settings.server_ciphers_first:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    problems = [
        *_set_ciphers(context, settings.ciphers),
        *_load_chain(context, settings.cert, settings.key),
        *_load_authorities(context, settings.client_ca),
    ]
    if problems:
        raise WebFileError(origin, problems)
    context.verify_mode = _AUTH[settings.client_auth]
    return context


def allowed(certificate: Mapping[str, object] | None, sans: tuple[str, ...]) -> bool:
    """Say whether a peer's certificate (as `getpeercert` gives it) has one of `sans`; with none given, any will do."""
    if not sans:
        return True
    names = certificate.get("subjectAltName", ()) if certificate else ()
    return isinstance(names, tuple) and any(pair[1] in sans for pair in names)


def _set_ciphers(context: ssl.SSLContext, names: tuple[str, ...]) -> list[str]:
    try:
        if names:
            context.set_ciphers(":".join(names))
    except ssl.SSLError as error:
        return [f"tls_server_config.cipher_suites: {said(error)}"]
    return []


def _load_chain(context: ssl.SSLContext, cert: Pem, key: Pem) -> list[str]:
    """Load the server's certificate and its key; gives what is wrong with them."""
    try:
        with _as_file(cert.data) as cert_file, _as_file(key.data) as key_file:
            context.load_cert_chain(cert_file, key_file, password=_no_password)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        faults = [fault for fault in (certificate_fault(cert), key_fault(key)) if fault is not None]
        if faults:
            return faults
        if "KEY_VALUES_MISMATCH" in str(error):
            return [f"{key.name} is not the key of the first certificate in {cert.name}"]
        if isinstance(error, ssl.SSLError) and not getattr(error, "reason", None):
            return [f"{key.name} holds a private key that is damaged, or of a kind that OpenSSL does not read"]
        return [f"{cert.name} with {key.name}: {said(error)}"]
    return []


def _load_authorities(context: ssl.SSLContext, authorities: Pem | None) -> list[str]:
    if authorities is None:
        return []
    try:
        with _as_file(authorities.data) as file:
            context.load_verify_locations(cafile=file)
    except (OSError, ValueError) as error:
        return [certificate_fault(authorities) or f"{authorities.name}: {said(error)}"]
    return []


def _no_password() -> str:
    raise ValueError("the key is encrypted: mpswatch has nobody to ask for its password")


@contextlib.contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """Lend PEM data as a file, because that is the only form that Python's TLS takes a key in; never on a disk."""
    descriptor = os.memfd_create("mpswatch-pem", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        yield f"/proc/self/fd/{descriptor}"

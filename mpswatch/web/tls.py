"""TLS settings become a context; a verified client is held to the names it may have."""

from __future__ import annotations

import asyncio.sslproto
import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from mpswatch.web.settings import TlsSettings, WebFileError

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
    try:
        if settings.ciphers:
            context.set_ciphers(":".join(settings.ciphers))
        with _as_file(settings.cert) as cert, _as_file(settings.key) as key:
            certificate = settings.cert_file or cert
            if certificate is not None:
                context.load_cert_chain(certificate, settings.key_file or key, password=_no_password)
        if settings.client_ca_file is not None or settings.client_ca is not None:
            context.load_verify_locations(cafile=settings.client_ca_file, cadata=settings.client_ca)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise WebFileError(origin, [f"tls_server_config: {error}"]) from error
    context.verify_mode = _AUTH[settings.client_auth]
    return context


def allowed(certificate: Mapping[str, object] | None, sans: tuple[str, ...]) -> bool:
    """Say whether a peer's certificate (as `getpeercert` gives it) has one of `sans`; with none given, any will do."""
    if not sans:
        return True
    names = certificate.get("subjectAltName", ()) if certificate else ()
    return isinstance(names, tuple) and any(pair[1] in sans for pair in names)


def _no_password() -> str:
    raise ValueError("the key is encrypted: mpswatch has nobody to ask for its password")


@contextlib.contextmanager
def _as_file(text: str | None) -> Iterator[Path | None]:
    """Lend PEM data as a file, because that is the only form that Python's TLS takes a key in."""
    if text is None:
        yield None
        return
    descriptor, name = tempfile.mkstemp(prefix="mpswatch-", suffix=".pem")  # readable by its owner only
    path = Path(name)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        yield path
    finally:
        path.unlink(missing_ok=True)

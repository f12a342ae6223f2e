"""The web configuration file of Prometheus' exporter-toolkit: read whole, every fault named, nothing passed over.

What Python's TLS cannot do (curve preferences, a client certificate that nobody verifies, HTTP/2, TLS below 1.2) is
refused by name rather than ignored: whoever wrote it relies on it. Paths are relative to the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mpswatch.web.settings import Pem, Stamp, TlsSettings, WebFileError, WebSettings
from mpswatch.yaml_tree import UnreadableError, read_file, read_yaml

CLIENT_AUTH = ("NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert")
VERSIONS = ("TLS12", "TLS13")
HEADERS = (
    "Strict-Transport-Security",
    "X-Content-Type-Options",
    "X-Frame-Options",
    "X-XSS-Protection",
    "Content-Security-Policy",
)
MAX_USERS = 1000
MOST_PEM_BYTES = 4 << 20
"""Of a certificate's file: all the authorities that a distribution trusts are 220 KiB."""
_BCRYPT = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")

CIPHERS = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
}
"""Go's names of the TLS 1.2 suites that are still safe, and OpenSSL's names of the same."""


def read_settings(path: Path, seen: dict[Path, Stamp] | None = None) -> WebSettings:
    """Read the file at `path`, or raise `WebFileError` with all its faults. An empty file asks for nothing.

    `seen` is filled with every file that was looked at, each as it was just before: a change while reading is noticed.
    """
    seen = {} if seen is None else seen
    seen[path] = stamp_of(path)
    try:
        content, _, problems = read_yaml(read_file(path))
    except UnreadableError as error:
        raise WebFileError(path, [str(error)], seen) from error
    if problems:
        raise WebFileError(path, [" ".join(str(problem).split()) for problem in problems], seen)
    if content is None:
        return WebSettings()
    reader = _Reader(path.parent, seen)
    top = reader.section("", content, ("tls_server_config", "http_server_config", "basic_auth_users", "rate_limit"))
    if top.get("rate_limit") is not None:
        reader.fault("rate_limit", "is not supported by mpswatch (it bounds requests in work by itself)")
    tls = reader.tls(top["tls_server_config"]) if top.get("tls_server_config") is not None else None
    users = reader.users(top.get("basic_auth_users"))
    headers = reader.headers(top.get("http_server_config"))
    if reader.problems:
        raise WebFileError(path, reader.problems, seen)
    return WebSettings(tls=tls, users=users, headers=headers)


def stamp_of(path: Path) -> Stamp:
    """Look at a file without opening it."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class _Reader:
    """Reads the sections, and collects what is wrong instead of stopping at the first fault."""

    def __init__(self, directory: Path, seen: dict[Path, Stamp]) -> None:
        self._directory = directory
        self._seen = seen
        self.problems: list[str] = []

    def fault(self, where: str, what: str) -> None:
        self.problems.append(f"{where} {what}" if where else what)

    def section(self, where: str, value: object, known: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.fault(where, "must be a map of keys")
            return {}
        for key in value:
            if key not in known:
                self.fault(f"{where}.{key}" if where else str(key), "is not a key of this file")
        return value

    def tls(self, value: object) -> TlsSettings | None:
        """The section; None, with a fault noted, where certificate or key are missing."""
        where = "tls_server_config"
        found = self.section(
            where,
            value,
            (
                *("cert", "key", "client_ca", "cert_file", "key_file", "client_ca_file"),
                *("client_auth_type", "client_allowed_sans", "min_version", "max_version"),
                *("cipher_suites", "curve_preferences", "prefer_server_cipher_suites"),
            ),
        )
        cert, key, client_ca = (self._pem(where, found, name) for name in ("cert", "key", "client_ca"))
        for name in ("cert", "key"):
            if not found.get(name) and not found.get(f"{name}_file"):
                self.fault(f"{where}.{name}_file", "is missing")
        auth = self._choice(where, found, "client_auth_type", CLIENT_AUTH, "NoClientCert")
        has_ca = bool(found.get("client_ca") or found.get("client_ca_file"))
        sans = self._texts(where, found, "client_allowed_sans")
        if has_ca and auth == "NoClientCert":
            self.fault(f"{where}.client_ca_file", f"is given, but client_auth_type is {auth}")
        if not has_ca and auth in CLIENT_AUTH[1:]:
            self.fault(f"{where}.client_ca_file", f"is missing, and client_auth_type is {auth}")
        if sans and auth != "RequireAndVerifyClientCert":
            self.fault(f"{where}.client_allowed_sans", "needs client_auth_type RequireAndVerifyClientCert")
        if found.get("curve_preferences"):
            self.fault(f"{where}.curve_preferences", "cannot be honoured by mpswatch (Python's TLS sets only one)")
        names = self._texts(where, found, "cipher_suites")
        for name in names:
            if name not in CIPHERS:
                self.fault(f"{where}.cipher_suites", f"holds {name!r}, which mpswatch cannot honour")
        low = self._choice(where, found, "min_version", VERSIONS, "TLS12")
        high = self._choice(where, found, "max_version", VERSIONS, "TLS13")
        if low > high:
            self.fault(f"{where}.min_version", f"{low} is above max_version {high}")
        first = found.get("prefer_server_cipher_suites", True)
        if not isinstance(first, bool):
            self.fault(f"{where}.prefer_server_cipher_suites", "must be true or false")
        if cert is None or key is None:
            return None
        return TlsSettings(
            cert=cert,
            key=key,
            client_ca=client_ca,
            client_auth=auth,
            client_allowed_sans=sans,
            min_version=low,
            max_version=high,
            ciphers=tuple(CIPHERS[name] for name in names if name in CIPHERS),
            server_ciphers_first=bool(first),
        )

    def users(self, value: object) -> dict[str, bytes]:
        where = "basic_auth_users"
        if value is None:
            return {}
        if not isinstance(value, dict) or len(value) > MAX_USERS:
            self.fault(where, f"must be a map of at most {MAX_USERS} users to bcrypt hashes")
            return {}
        users = {}
        for name, hashed in value.items():
            if not isinstance(name, str) or not name or ":" in name:
                self.fault(where, f"holds the user {name!r}: a name is a text without a colon")
            elif not isinstance(hashed, str) or (match := _BCRYPT.fullmatch(hashed)) is None:
                # The value is not shown: it may be a password that somebody forgot to hash.
                self.fault(f"{where}.{name}", "is not a bcrypt hash")
            elif not 4 <= int(match[1]) <= 16:
                self.fault(f"{where}.{name}", f"has a bcrypt cost of {int(match[1])}: 4 to 16 can be checked in time")
            else:
                users[name] = hashed.encode()
        return users

    def headers(self, value: object) -> dict[str, str]:
        where = "http_server_config"
        if value is None:
            return {}
        found = self.section(where, value, ("http2", "headers"))
        if found.get("http2", False) is not False:
            self.fault(f"{where}.http2", "cannot be honoured: mpswatch speaks HTTP/1.1 only")
        headers = found.get("headers") or {}
        if not isinstance(headers, dict):
            self.fault(f"{where}.headers", "must be a map of header names to texts")
            return {}
        for name, text in headers.items():
            if name not in HEADERS:
                self.fault(f"{where}.headers.{name}", f"is not one of {', '.join(HEADERS)}")
            elif not isinstance(text, str) or not text.isascii() or not text.isprintable():
                self.fault(f"{where}.headers.{name}", "must be a printable text on one line")
        return headers

    def _pem(self, where: str, found: Mapping[str, Any], name: str) -> Pem | None:
        """What is given as `name` or in the file `name`_file; None where neither is, or with a fault noted."""
        value, file = found.get(name), found.get(f"{name}_file")
        if value and file:
            self.fault(f"{where}.{name}", f"and {name}_file are both given")
        if file:
            return self._file(f"{where}.{name}_file", file)
        if not value:
            return None
        if not isinstance(value, str) or "-----BEGIN" not in value:
            self.fault(f"{where}.{name}", "must hold PEM data")
            return None
        return Pem(f"{where}.{name}", value.encode())

    def _file(self, where: str, value: object) -> Pem | None:
        if not isinstance(value, str) or "\0" in value:
            self.fault(where, "must be a path")
            return None
        path = self._directory / value
        self._seen[path] = stamp_of(path)
        try:
            return Pem(f"{where} {path}", read_file(path, MOST_PEM_BYTES))
        except UnreadableError as error:
            self.fault(where, f"{path} {error}")
            return None

    def _choice(self, where: str, found: Mapping[str, Any], name: str, known: tuple[str, ...], default: str) -> str:
        value = found.get(name) or default
        if value not in known:
            self.fault(f"{where}.{name}", f"is {value!r}: mpswatch can honour {', '.join(known)}")
            return default
        return str(value)

    def _texts(self, where: str, found: Mapping[str, Any], name: str) -> tuple[str, ...]:
        value = found.get(name) or []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.fault(f"{where}.{name}", "must be a list of texts")
            return ()
        return tuple(value)

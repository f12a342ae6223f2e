"""The web settings in force: who may read, over which TLS, with which headers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from mpswatch.documents import Reason
from mpswatch.errors import MpswatchError

Stamp: TypeAlias = tuple[int, int, int] | None
"""What tells one state of a file from another: time, size and inode. None: there is no such file."""


class WebFileError(MpswatchError):
    """The web configuration file, or a file it names, cannot be used; `problems` names every fault.

    `seen` are the files that were looked at, as they were: another look is of use once one of them changed.
    """

    def __init__(self, path: Path, problems: Iterable[str], seen: Mapping[Path, Stamp] | None = None) -> None:
        self.problems = tuple(problems)
        self.seen = dict(seen or {})
        super().__init__(
            Reason.WEB_CONFIGURATION,
            f"{path}: " + "; ".join(self.problems),
            "correct the file that --web.config.file names",
        )


@dataclass(frozen=True, slots=True)
class Pem:
    """PEM data and where they are from: `name` is the key and, for a file, its path."""

    name: str
    data: bytes = field(repr=False)  # it may be a private key


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The server's TLS; certificates and key as they were read, from a file or from the configuration itself."""

    cert: Pem
    key: Pem
    client_ca: Pem | None = None
    client_auth: str = "NoClientCert"
    client_allowed_sans: tuple[str, ...] = ()
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    ciphers: tuple[str, ...] = ()
    server_ciphers_first: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """A web configuration in force. `users` maps names to bcrypt hashes; empty means no password is asked."""

    tls: TlsSettings | None = None
    users: Mapping[str, bytes] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def private(self) -> bool:
        """Whether everyone who gets a page has proved who they are (a password, or a verified certificate)."""
        return bool(self.users) or (self.tls is not None and self.tls.client_auth == "RequireAndVerifyClientCert")

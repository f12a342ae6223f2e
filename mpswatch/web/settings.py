"""The web settings in force: who may read, over which TLS, with which headers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mpswatch.documents import Reason
from mpswatch.errors import MpswatchError


class WebFileError(MpswatchError):
    """The web configuration file, or a file it names, cannot be used; `problems` names every fault."""

    def __init__(self, path: Path, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(
            Reason.WEB_CONFIGURATION,
            f"{path}: " + "; ".join(self.problems),
            "correct the file that --web.config.file names",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The server's TLS. PEM data are given as a file or in the configuration itself, never both."""

    cert_file: Path | None = None
    key_file: Path | None = None
    client_ca_file: Path | None = None
    cert: str | None = None
    key: str | None = None
    client_ca: str | None = None
    client_auth: str = "NoClientCert"
    client_allowed_sans: tuple[str, ...] = ()
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    ciphers: tuple[str, ...] = ()
    server_ciphers_first: bool = True

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(path for path in (self.cert_file, self.key_file, self.client_ca_file) if path is not None)


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

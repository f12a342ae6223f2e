"""Whether the listen address is free, the web file can be honoured, and who will see what is served."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Iterator
from pathlib import Path

from mpswatch.config import Config
from mpswatch.daemon.finding import Line
from mpswatch.web import WebFile, WebFileError


def port_lines(config: Config) -> Iterator[Line]:
    """Lines for doctor."""
    passwords = False
    if config.web.config_file is not None:
        try:
            passwords = bool(WebFile.load(Path(config.web.config_file)).settings.users)
        except WebFileError as error:
            yield Line("mend", "web file", error.detail, error.remedy)
    yield _address(config, shown_to(config, passwords=passwords))


def _address(config: Config, shown: str) -> Line:
    host, port = config.web.listen_address
    address = f"{host or 'all interfaces'}:{port}"
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, where = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except OSError as error:
        reason = error.strerror or str(error)
        return Line(
            "note" if error.errno == errno.EADDRINUSE else "mend",
            "port",
            f"{address}: {reason} (a running mpswatch would be the reason)",
            "choose another with --web.listen-address, if it is not mpswatch that has it",
        )
    return Line("good", "port", f"{address} is free; {shown}")


def shown_to(config: Config, *, passwords: bool) -> str:
    """Who can read what is served at the configured address."""
    host, _ = config.web.listen_address
    locked = "behind the passwords of the web file" if passwords else "without a password"
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    if local:
        return f"only this host's own users can read it, {locked}; users and command lines show only behind a password"
    return f"everybody who reaches this host can read it, {locked}; users and command lines show only behind a password"

"""`mpswatch healthcheck`."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path

import click

from mpswatch.cli.options import AS_JSON, LISTEN, WEB_FILE, Source, configured
from mpswatch.daemon.exit import Exit

DEADLINE = 5.0


@click.command("healthcheck")
@click.option("--ready", is_flag=True, help="Ask whether the first poll has finished, instead.")
@configured(LISTEN, WEB_FILE, AS_JSON)
def command(*, source: Source, ready: bool, as_json: bool) -> None:
    """Ask the daemon at the configured address whether it is healthy: exits 0 or 1. For container images."""
    config = source.load()
    host, port = config.web.listen_address
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - read, not bound
    path = "/-/ready" if ready else "/-/healthy"
    tls = _has_tls(config.web.config_file)
    status, error = None, None
    try:
        status = _ask(host, port, path, tls=tls)
    except (OSError, http.client.HTTPException) as caught:
        error = f"nobody answers at {host}:{port}: {caught}"
    else:
        if status != 200:
            error = f"{path} says {status}"
    if as_json:
        shown = f"[{host}]" if ":" in host else host
        url = f"{'https' if tls else 'http'}://{shown}:{port}{path}"
        click.echo(json.dumps({"url": url, "ok": error is None, "status": status, "error": error}, indent=2))
    elif error is not None:
        click.echo(f"mpswatch: {error}", err=True)
    if error is not None:
        raise click.exceptions.Exit(Exit.FAILED)


def _ask(host: str, port: int, path: str, *, tls: bool) -> int:
    if tls:
        # our own daemon on this very host: what is asked is whether it lives, not whether its certificate is good
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, port, timeout=DEADLINE, context=context
        )
    else:
        connection = http.client.HTTPConnection(host, port, timeout=DEADLINE)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def _has_tls(web_file: str | None) -> bool:
    if web_file is None:
        return False
    from mpswatch.web import WebFile  # noqa: PLC0415 - only where there is one

    return WebFile.load(Path(web_file)).context is not None

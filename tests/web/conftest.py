"""The real server on a loopback port, in a thread with a loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading

import pytest
import trustme

from mpswatch.metrics import Exposition
from mpswatch.web import Limits, Protection, WebFile, WebServer, application, bind


class Log:
    """Takes log lines as structlog's loggers do."""

    def __init__(self):
        self.lines = []

    def info(self, event, **fields):
        self.lines.append(("info", event, fields))

    def error(self, event, **fields):
        self.lines.append(("error", event, fields))


class Running:
    """A server that answers; `url` is where."""

    def __init__(self, latest, web_file, limits):
        self.healthy = True
        self.log = Log()
        self.sockets = bind("127.0.0.1", 0)
        self.port = self.sockets[0].getsockname()[1]
        self.url = f"{'https' if web_file is not None and web_file.context else 'http'}://127.0.0.1:{self.port}"
        self.protection = Protection(web_file)
        self.latest = latest
        self._web_file = web_file
        self._limits = limits
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self):
        app = application(
            latest=self.latest,
            exposition=Exposition(self.latest),
            healthy=lambda: self.healthy,
            verdict=lambda: "sweeps will run",
            protection=self.protection,
            limits=self._limits,
        )
        self.server = WebServer(
            app,
            self.sockets,
            protection=self.protection,
            web_file=self._web_file,
            limits=self._limits,
            log=self.log,
        )
        self.loop = asyncio.get_running_loop()
        task = asyncio.create_task(self.server.serve())
        while not self.server.started and not task.done():  # noqa: ASYNC110  # uvicorn has no event for it
            await asyncio.sleep(0.005)
        self._ready.set()
        await task

    def start(self):
        self._thread.start()
        assert self._ready.wait(5)

    def stop(self):
        with contextlib.suppress(RuntimeError):  # it has been stopped already
            self.loop.call_soon_threadsafe(self.server.stop)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)


@pytest.fixture
def serving(latest):
    """Start a server: serving(web_file=…, limits=Limits(…)) gives a `Running`."""
    with contextlib.ExitStack() as stack:

        def start(*, path=None, limits=None):
            running = Running(latest, WebFile.load(path) if path is not None else None, limits or Limits())
            running.start()
            stack.callback(running.stop)
            return running

        yield start


class WebDirectory:
    """A directory with certificates of its own CA, and the web configuration file that names them."""

    def __init__(self, path):
        self.path = path
        self.authority = trustme.CA()
        self.ca = path / "ca.pem"
        self.authority.cert_pem.write_to_path(self.ca)
        self.issue()

    def issue(self, name="127.0.0.1"):
        """Issue the server's certificate (again)."""
        certificate = self.authority.issue_cert(name)
        (self.path / "server.pem").write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        certificate.private_key_pem.write_to_path(self.path / "server.key")
        return certificate

    def write(self, text=""):
        """Write web.yml: TLS, and whatever `text` adds to it."""
        file = self.path / "web.yml"
        file.write_text(f"tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n{text}")
        return file


@pytest.fixture
def web_directory(tmp_path):
    return WebDirectory(tmp_path)

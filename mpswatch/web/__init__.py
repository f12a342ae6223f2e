"""Routes, TLS, passwords and the page, over the latest view and nothing else.

For the daemon:

    sockets = bind(host, port)                     # raises AddressError with the remedy; "" is every interface
    web_file = WebFile.load(path)                  # exporter-toolkit's file; raises WebFileError with every fault
    protection = Protection(web_file)              # None: nobody is asked for a password
    app = application(latest=latest, exposition=metrics.Exposition(latest, options), healthy=lambda: bool,
                      verdict=lambda: "sweeps will run", protection=protection)
    server = WebServer(app, sockets, web_file=web_file, protection=protection, log=structlog's logger)
    task = asyncio.create_task(server.serve())     # returns once stopped; leaves signals alone
    server.stop()                                  # ends `serve` within the graceful time-out
"""

from mpswatch.web.gate import Limits
from mpswatch.web.page_interference import FoundInterference
from mpswatch.web.page_run import FoundRun
from mpswatch.web.protection import Protection
from mpswatch.web.routes import application
from mpswatch.web.server import AddressError, WebServer, bind
from mpswatch.web.settings import WebFileError, WebSettings
from mpswatch.web.webfile import WebFile

__all__ = [
    "AddressError",
    "FoundInterference",
    "FoundRun",
    "Limits",
    "Protection",
    "WebFile",
    "WebFileError",
    "WebServer",
    "WebSettings",
    "application",
    "bind",
]

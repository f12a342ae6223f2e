"""Routes, TLS, passwords and the page, over the latest view and nothing else.

For the daemon (signatures; all in this package's namespace):

    sockets = bind(host, port)                       # raises AddressError: a taken port, with the remedy; "" is every interface
    web_file = WebFile.load(path)                    # exporter-toolkit's web configuration; raises WebFileError (all faults named)
    app = application(latest=latest, exposition=metrics.Exposition(latest, options), healthy=lambda: bool,
                      verdict=lambda: "sweeps will run", protection=Protection(web_file))
    server = WebServer(app, sockets, web_file=web_file, protection=…, limits=Limits(), log=callable(event, **fields))
    task = asyncio.create_task(server.serve())       # returns once stopped; leaves signals alone
    server.stop()                                    # ends `serve` within the graceful time-out
"""

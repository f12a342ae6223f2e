"""From a configuration to a running daemon and its exit code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from mpswatch import logs
from mpswatch.config import Config
from mpswatch.daemon import memory
from mpswatch.daemon.exit import Exit
from mpswatch.daemon.mixing import refuse_mixed_stacks
from mpswatch.daemon.service import Service
from mpswatch.daemon.serving import bind_address, url_of, web_file_of
from mpswatch.daemon.sweeps import Outcome
from mpswatch.daemon.systemd import Notifier
from mpswatch.daemon.work_directory import make_work_directory
from mpswatch.sweep.ports import Watcher


def run(
    config: Config,
    *,
    reread: Callable[[], Config],
    simulated: bool,
    first_sweep_at_once: bool = False,
    progress: Watcher = lambda _step: None,
    after_sweep: Callable[[Sequence[Outcome]], None] = lambda _outcomes: None,
    listening: Callable[[str], None] = lambda _url: None,
) -> Exit:
    """Run the daemon until it is told to stop. The caller leaves by `os._exit`: a hung source must not hold it.

    `listening` is told the URL once nothing can stop the start any more.
    Raises `MpswatchError` for what stops a start: a mixed stack, a taken address, a bad web file.
    """
    memory.one_heap()
    logs.set_up(config.log.level, config.log.format)
    notifier = Notifier.from_environment()
    refuse_mixed_stacks(config, simulated=simulated)
    web_file = web_file_of(config)  # what it cannot honour stops the start, before a port is taken
    sockets = bind_address(config)
    work_directory = make_work_directory()
    listening(url_of(config, sockets, tls=web_file is not None and web_file.context is not None))

    async def serve() -> Exit:
        service = Service(
            config,
            sockets,
            reread=reread,
            simulated=simulated,
            work_directory=work_directory,
            notifier=notifier,
            first_sweep_at_once=first_sweep_at_once,
            progress=progress,
            after_sweep=after_sweep,
        )
        code = await service.run()
        service.tidy_up()
        return code

    # Not asyncio.run: it would wait for whatever thread the web server's libraries left behind.
    loop = asyncio.new_event_loop()
    code = loop.run_until_complete(serve())
    logs.flush()
    return code

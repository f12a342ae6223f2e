"""The README's pictures: what was recorded on an H200, on the real page, in a real Chromium.

python tests/page/pictures.py docs/pictures [RECORDINGS]

RECORDINGS (tests/recordings/h200-580 unless given) has a poll.json, runs, and perhaps interference documents.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import tempfile
import threading
from datetime import UTC, datetime
from pathlib import Path

from mpswatch.archive import Archive, read_run
from mpswatch.documents import InterferenceDocument, PollSnapshot, from_json
from mpswatch.history import look_back
from mpswatch.latest import Latest, Settings
from mpswatch.metrics import Exposition
from mpswatch.web import Protection, WebServer, application, bind

RECORDED = Path(__file__).parents[1] / "recordings" / "h200-580"

_spec = importlib.util.spec_from_file_location("picture_browser", Path(__file__).with_name("browser.py"))
assert _spec is not None
assert _spec.loader is not None
_browser = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_browser)


class Quiet:
    def info(self, *_: object, **__: object) -> None:
        pass

    error = info


def latest_of(recorded: Path) -> Latest:
    """The latest view as it was after the last recorded sweep."""
    poll = from_json((recorded / "poll.json").read_bytes(), PollSnapshot)
    runs = [read_run(path) for plan in ("quick", "thorough") for path in sorted(recorded.glob(f"*_{plan}_*.json"))]
    daemons = {look.name: look.pipe_directory for look in poll.daemons}
    latest = Latest(
        Settings(daemons=daemons, poll_interval=15.0, sweep_interval=3600.0), host=poll.host, simulated=False
    )
    latest.record(poll)
    with tempfile.TemporaryDirectory() as place:
        archive = Archive(Path(place))
        archive.prepare()
        for run in runs:
            latest.record(run)
            latest.record(look_back(archive, run, now=datetime.now(UTC)))
            archive.write(run)
    for path in sorted(recorded.glob("*.interference.json")):
        latest.record(from_json(path.read_bytes(), InterferenceDocument))
    return latest


def main(directory: Path, recorded: Path) -> None:
    latest, sockets, ready = latest_of(recorded), bind("127.0.0.1", 0), threading.Event()
    protection = Protection(None)
    app = application(
        latest=latest, exposition=Exposition(latest), healthy=lambda: True, verdict=lambda: "sweeps will run",
        protection=protection,
    )  # fmt: skip

    async def serve() -> None:
        server = WebServer(app, sockets, protection=protection, log=Quiet())
        task = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110  # uvicorn has no event for it
            await asyncio.sleep(0.01)
        ready.set()
        await task

    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    ready.wait(10)
    with _browser.Browser() as browser:
        for name, dark in (("status-light", False), ("status-dark", True)):
            browser.show(1280, 1010, dark=dark)
            browser.open(f"http://127.0.0.1:{sockets[0].getsockname()[1]}/")
            browser.picture(directory / f"{name}.png", whole=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else RECORDED)

"""Many hosts' endpoints from one process: `python hosts.py HOSTS PORT INTERVAL TARGETS`.

Every host is a real `Latest` and a real `Exposition`, fed with documents that a real H200 wrote
(tests/recordings/h200-580) under its own name and GPU; a poll is due every INTERVAL seconds, a sweep every hour.
TARGETS is written for Prometheus' file discovery: one target each, told apart by path and instance label.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from mpswatch.documents import Cell, PollSnapshot, SweepDocument, Tenant, from_json
from mpswatch.latest import Latest, Settings
from mpswatch.metrics.exposition import Exposition

RECORDED = Path(__file__).parents[1] / "recordings" / "h200-580"
CLUSTERS = 5
FOREIGN_EVERY = 10  # that many hosts have one with the recorded foreign tenant; the others are without


def renamed(text: str, number: int) -> bytes:
    """A recorded document as host `number` would have written it."""
    content = json.loads(text)
    uuid = _uuid(content)
    name = f"gpu{number:04}"
    return text.replace(uuid, f"GPU-{number:08x}{uuid[12:]}").replace(f'"{content["host"]}"', f'"{name}"').encode()


def _uuid(content: dict) -> str:
    if content.get("kind") == "poll":
        return str(content["gpus"]["value"][0]["gpu"]["uuid"])
    return str(content["gpu"]["uuid"])


class Host:
    """One host: polls and sweeps as time goes by, its exposition on demand."""

    def __init__(self, number: int, poll: str, sweep: str, interval: float) -> None:
        self.number = number
        self.name = f"gpu{number:04}"
        self.cluster = f"cluster{number % CLUSTERS}"
        self._chance = random.Random(number)
        self._poll = from_json(renamed(poll, number), PollSnapshot)
        if number % FOREIGN_EVERY:
            self._poll = without_foreign(self._poll)
        self._sweep = from_json(renamed(sweep, number), SweepDocument)
        directory = self._poll.daemons[0].pipe_directory
        daemon = self._poll.daemons[0].name
        settings = Settings(daemons={daemon: directory}, poll_interval=interval, sweep_interval=3600.0)
        self._latest = Latest(settings, host=self.name, simulated=False)
        self._latest.expect([(daemon, self._sweep.gpu.uuid, "quick")] if self._sweep.gpu else [])
        self._latest.set_fault_log(daemon, None)
        self._exposition = Exposition(self._latest)
        self._interval = interval
        self._next_poll = 0.0
        self._next_sweep = 0.0

    def poll_now(self) -> None:
        """Be polled at the next scrape, whenever the last poll was."""
        self._next_poll = 0.0

    def body(self) -> bytes:
        now = time.monotonic()
        if now >= self._next_poll:
            self._next_poll = now + self._interval * 0.9
            self._latest.record(self._polled())
        if now >= self._next_sweep:
            self._next_sweep = now + 3600 * self._chance.uniform(0.2, 1)
            self._latest.record(self._swept())
            self._latest.archive_written(datetime.now(UTC), 20_000)
        return self._exposition.render("text", compressed=True)

    def _polled(self) -> PollSnapshot:
        now = datetime.now(UTC)
        tenants = tuple(self._drifted(tenant) for tenant in self._poll.tenants.value or ())
        sources = tuple(
            msgspec.structs.replace(source, duration_seconds=source.duration_seconds * self._chance.uniform(0.9, 1.1))
            for source in self._poll.sources
        )
        return msgspec.structs.replace(
            self._poll,
            started_at=now - timedelta(milliseconds=20),
            finished_at=now,
            sources=sources,
            tenants=msgspec.structs.replace(self._poll.tenants, value=tenants),
        )

    def _swept(self) -> SweepDocument:
        now = datetime.now(UTC)
        cells = tuple(self._varied(cell) for cell in self._sweep.cells)
        return msgspec.structs.replace(self._sweep, cells=cells, started_at=now - timedelta(seconds=9), finished_at=now)

    def _drifted(self, tenant: Tenant) -> Tenant:
        if tenant.used_memory_bytes is None:
            return tenant
        return msgspec.structs.replace(
            tenant, used_memory_bytes=tenant.used_memory_bytes + 4096 * self._chance.randrange(9)
        )

    def _varied(self, cell: Cell) -> Cell:
        if cell.tflops is None:
            return cell
        return msgspec.structs.replace(cell, tflops=cell.tflops * self._chance.uniform(0.97, 1.03))


def without_foreign(poll: PollSnapshot) -> PollSnapshot:
    tenants = tuple(tenant for tenant in poll.tenants.value or () if tenant.kind != "foreign")
    return msgspec.structs.replace(poll, tenants=msgspec.structs.replace(poll.tenants, value=tenants))


def targets(hosts: list[Host], port: int) -> list[dict[str, object]]:
    return [
        {
            "targets": [f"127.0.0.1:{port}"],
            "labels": {
                "__metrics_path__": f"/{host.number}/metrics",
                "instance": f"{host.name}:10677",
                "cluster": host.cluster,
            },
        }
        for host in hosts
    ]


async def serve(hosts: dict[str, Host], port: int) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                body = hosts[head.split(b" ", 2)[1].decode()].body()
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                    b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body
                )
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port, backlog=1024)
    async with server:
        await server.serve_forever()


def main(count: int, port: int, interval: float, file: Path) -> None:
    poll = (RECORDED / "poll.json").read_text()
    sweep = sorted(RECORDED.glob("*_quick_*.json"))[0].read_text()
    hosts = [Host(number, poll, sweep, interval) for number in range(1, count + 1)]
    file.write_text(json.dumps(targets(hosts, port)))
    asyncio.run(serve({f"/{host.number}/metrics": host for host in hosts}, port))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]))

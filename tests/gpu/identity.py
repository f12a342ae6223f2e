"""Who is it? Tenants, users and refusals on a real GPU, in about 90 seconds, as root.

usage: identity.py OUTPUT_DIRECTORY [--rehearsal] [--only NAME…]

Two daemons side by side with a pid-namespaced client, a service that has escaped and one that is welcome; a multi-user
server with three users; a client of another uid that waits (started here, not by mpswatch); and a sweep that is refused
in each case in which it must be, with control.log as the witness that no client of ours came. Writes poll documents,
control.log and `identity.json` (each check: what, and whether it held). Exits 1 when one did not.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parent))

from private_mps import (
    ROOT,
    Clients,
    Mps,
    Rehearsed,
    Watching,
    came,
    configure,
    lacks,
    until,
)  # sets the path for mpswatch

from mpswatch.config import load
from mpswatch.daemon.once import sweep_once
from mpswatch.daemon.parts import Parts, make_parts
from mpswatch.documents import PollSnapshot, SweepDocument, Tenant, to_json
from mpswatch.sweep.progress import CellDone
from mpswatch.sweep.stop import Stop

USERS = {"daemon": 1, "games": 5, "nobody": 65534}


class Run:
    """What was found; nothing stops at the first finding."""

    def __init__(self, output: Path, work: Path, *, rehearsal: bool) -> None:
        self.output, self.work, self.rehearsal = output, work, rehearsal
        self.checks: list[dict[str, object]] = []
        self.figures: dict[str, object] = {}
        self.log: list[dict[str, Any]] = []
        """What the last sweep logged."""
        self.began = time.monotonic()

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:7.2f}  {text}", flush=True)

    def check(self, holds: object, text: str) -> None:
        self.say(f"{'ok  ' if holds else 'FAIL'}  {text}")
        self.checks.append({"holds": bool(holds), "what": text})

    def write(self, name: str, text: str) -> None:
        """Into the output, with no path and no name of this machine."""
        for found, shown in ((self.work, "/tmp/private"), (ROOT, "/srv/mpswatch"), (Path.home(), "~")):
            if len(str(found)) > 1:
                text = re.sub(rf"(?<![\w.-]){re.escape(str(found))}(?![\w.-])", shown, text)
        (self.output / name).write_text(re.sub(rf"\b{re.escape(socket.gethostname())}\b", "h200", text))

    def finish(self, name: str) -> NoReturn:
        """Write what was found as `name`, and leave by `os._exit`: a hung NVML call, or a client that waits, must not
        hold the exit."""
        failed: list[Any] = [check["what"] for check in self.checks if not check["holds"]]
        summary = {
            "seconds": round(time.monotonic() - self.began, 1),
            "python": sys.version.split()[0],
            "kernel": os.uname().release,
            "held": len(self.checks) - len(failed),
            "failed": failed,
            "checks": self.checks,
            "figures": self.figures,
        }
        self.write(name, json.dumps(summary, indent=1))
        self.say(f"{summary['held']} checks held, {len(failed)} did not")
        for what in failed:
            print(f"  FAIL {what}")
        shutil.rmtree(self.work, ignore_errors=True)
        sys.stdout.flush()
        os._exit(1 if failed else 0)

    def mps(self, name: str, *flags: str) -> Mps:
        return (Rehearsed if self.rehearsal else Mps)(self.work, name, *flags)

    def parts(self, daemons: Sequence[Mps], **sweep: Any) -> Parts:
        return make_parts(load(configure(self.work, daemons, **sweep)), simulated=self.rehearsal)

    def sweep(
        self,
        mps: Mps,
        wanted: str,
        why: str,
        *,
        on_step: Callable[[object], None] = lambda _step: None,
        **sweep: Any,
    ) -> SweepDocument | None:
        """One attempt; it must end in `wanted`, and where that is a refusal no client of ours may have come."""
        parts = self.parts([mps], **sweep)
        before = mps.clients_seen()
        self.log = []
        swept = sweep_once(
            parts,
            parts.poller.look(),
            trigger="test",
            stop=Stop(),
            progress=on_step,
            work_directory=self.work,
            log=lambda event, **fields: self.log.append({"event": event, **fields}),
        )
        outcome = swept.outcomes[0]
        clients = came(before, mps.clients_seen())
        if isinstance(outcome, SweepDocument):
            ended = "complete" if outcome.complete_sweep else "partial"
            detail = "; ".join(f"{cell.cap}: {cell.unknown_reason or cell.state}" for cell in outcome.cells)
        else:
            ended, detail = str(outcome.reason), outcome.message
        self.check(ended == wanted, f"sweep, {why}: {wanted} wanted, {ended} came ({detail})")
        if not isinstance(outcome, SweepDocument):
            self.check(clients == 0, f"sweep, {why}: control.log names {clients} new clients")
        self.figures.setdefault("sweeps", {})[why] = {"ended": ended, "detail": detail, "clients_in_log": clients}  # type: ignore[index,attr-defined]
        return outcome if isinstance(outcome, SweepDocument) else None

    def refused(self, mps: Mps, wanted: str, why: str, **sweep: Any) -> None:
        """The daemon refuses its first sweep for that: in a metric, the journal and the log, and nobody came."""
        before = mps.clients_seen()
        with Watching(configure(self.work, [mps], **sweep), rehearsal=self.rehearsal) as daemon:
            until(lambda: daemon.events("sweep_refused") or daemon.program.poll() is not None, 20, strict=False)
            ends = time.monotonic() + 5
            while not (series := [line for line in daemon.metrics() if "last_sweep_refused{" in line]):
                if time.monotonic() > ends:
                    break
                time.sleep(0.05)
            until(lambda: any(line.get("event") == "no sweep" for line in daemon.lines()), 5, strict=False)
        journal = [event["reason"] for event in daemon.events("sweep_refused")]
        log = [line.get("reason") for line in daemon.lines() if line.get("event") == "no sweep"]
        clients = came(before, mps.clients_seen())
        self.check(journal == [wanted], f"daemon, {why}: the journal says {journal}")
        self.check(log == [wanted], f"daemon, {why}: the log says {log}")
        self.check(
            [f'reason="{wanted}"' in line for line in series] == [True], f"daemon, {why}: the metrics say {series}"
        )
        self.check(not daemon.events("sweep_started"), f"daemon, {why}: no sweep was started")
        self.check(clients == 0, f"daemon, {why}: control.log names {clients} new clients")


def tenants_of(snapshot: PollSnapshot) -> dict[int, Tenant]:
    return {tenant.pid: tenant for tenant in snapshot.tenants.value or ()}


def kinds(snapshot: PollSnapshot) -> str:
    return ", ".join(
        f"{t.pid} {t.kind} {t.daemon or ''} {'/'.join(t.expectations)}{t.welcome or ''}".strip()
        for t in snapshot.tenants.value or ()
    )


def cost(run: Run, parts: Parts, key: str) -> None:
    looks, processes = 20, 0
    parts.poller.look()
    began, cpu = time.monotonic(), time.process_time()
    for _ in range(looks):
        processes = len(parts.poller.look().tenants.value or ())
    run.figures[key] = {
        "processes": processes,
        "own_cpu_ms": round((time.process_time() - cpu) / looks * 1000, 2),
        "wall_ms": round((time.monotonic() - began) / looks * 1000, 2),
    }
    run.say(f"a poll costs {run.figures[key]}")


def two_daemons(run: Run) -> None:
    """Side by side; one client in a pid namespace, one service outside MPS, one welcome stranger."""
    with run.mps("one") as one, run.mps("two") as two:
        nowhere = run.work / "nowhere"
        nowhere.mkdir()
        batches = {
            "embedder": one.clients(2, "--as", "embedder", "--api-key", "hunter2"),
            "namespaced": one.clients(0, "--as", "boxed", namespaced=True),
            "ranker": two.clients(0, "--as", "ranker"),
        }
        if not run.rehearsal:
            batches |= {
                "escaped": Clients(run.work, nowhere, 0, "--as", "embedder"),
                "welcome": Clients(run.work, nowhere, 0, "--as", "monitoring"),
                "foreign": Clients(run.work, nowhere, 0, "--as", "stranger"),
            }
        for batch in batches.values():
            batch.wait()
        pids = {name: batch.pids() for name, batch in batches.items()}
        if isinstance(one, Rehearsed):
            for name, word in (("escaped", "embedder"), ("welcome", "monitoring"), ("foreign", "stranger")):
                pids[name] = [one.stack.add_foreign(name, arguments=("/srv/python3", "--as", word))]
        run.say(f"started {pids}")
        parts = run.parts([one] if run.rehearsal else [one, two])
        snapshot = parts.poller.look()
        run.write("poll-two-daemons.json", to_json(snapshot, indent=1).decode())
        found = tenants_of(snapshot)
        run.say(kinds(snapshot))

        def are(name: str, kind: str, daemon: str | None) -> bool:
            return all(pid in found and (found[pid].kind, found[pid].daemon) == (kind, daemon) for pid in pids[name])

        run.check(are("embedder", "managed", "one"), f"clients of one daemon are managed by it: {pids['embedder']}")
        run.check(are("namespaced", "managed", "one"), f"so is one that calls itself pid 1: {pids['namespaced']}")
        inside = batches["namespaced"].said.read_text().split()
        run.check(inside[:2] == ["ready", "1"], f"it does call itself pid 1: {inside}")
        if not run.rehearsal:
            run.check(are("ranker", "managed", "two"), f"the other's client is managed by that: {pids['ranker']}")
            servers = {t.daemon for t in found.values() if t.kind == "server"}
            run.check(servers == {"one", "two"}, f"both servers are told apart from tenants: {servers}")
        for name in ("escaped", "welcome", "foreign"):
            run.check(are(name, "foreign", None), f"{name} is foreign: {pids[name]}")
        run.check(not snapshot.disagreements, f"daemon and driver agree: {snapshot.disagreements}")
        run.check(all(t.kind != "unresolved" for t in found.values()), "nobody is unresolved")
        counts = {look.name: look for look in snapshot.expectations}
        run.check(
            (counts["embedder"].managed, counts["embedder"].escaped) == (2, 1),
            f"the embedder is managed twice, and one has escaped: {counts['embedder']}",
        )
        run.check(counts["monitoring"].matched == 1, f"one is welcome: {counts['monitoring']}")
        run.check(counts["nowhere"].matched == 0, "a pattern that nobody matches says so")
        who = found[pids["embedder"][0]].identity
        run.check(who is not None and who.user == "root", f"its user is known: {who and who.user}")
        line = (who.command_line or "") if who else ""
        run.check("--api-key ***" in line and "hunter2" not in line, f"its command line is masked: {line}")
        placed = [
            t.identity
            for t in found.values()
            if t.identity is not None and (t.identity.container_id or t.identity.unit)
        ]
        run.say(f"{len(placed)} of them stand in a unit or a container here: {placed[:1]}")
        cost(run, parts, "poll_two_daemons")
        if not run.rehearsal:
            (server,) = one.servers()
            asked = [f"{word} {server}" for word in ("get_active_thread_percentage", "get_device_client_list")]
            asked += ["get_default_active_thread_percentage", "get_default_device_pinned_mem_limit 0"]
            asked += [f"get_device_pinned_mem_limit {server} 0", f"lsserver {server}", "device_query"]
            run.write("commands.txt", "".join(f"$ {command}\n{one.ask(command)}\n" for command in asked))
        for batch in batches.values():
            batch.leave()


def multi_user(run: Run) -> None:
    """A server for everybody: three users side by side, and a sweep is welcome."""
    with run.mps("everybody", "-multiuser-server") as mps:
        batches = {name: mps.clients(0, "--as", name, uid=uid) for name, uid in USERS.items()}
        for batch in batches.values():
            batch.wait()
        parts = run.parts([mps])
        snapshot = parts.poller.look()
        run.write("poll-multi-user.json", to_json(snapshot, indent=1).decode())
        found = tenants_of(snapshot)
        run.say(kinds(snapshot))
        users = {}
        for name, batch in batches.items():
            for pid in batch.pids():
                tenant = found.get(pid)
                users[name] = tenant.identity.user if tenant is not None and tenant.identity is not None else None
                run.check(tenant is not None and tenant.kind == "managed", f"the client of {name} is managed: {pid}")
                run.check(tenant is not None and tenant.uid == USERS[name], f"its uid is {USERS[name]}")
        run.check(all(name == user for name, user in users.items()), f"users are named: {users}")
        (server,) = snapshot.daemons[0].servers.value or (None,)
        run.check(server is not None and server.multi_user is True, "the server is known to serve every uid")
        waiting = snapshot.daemons[0].waiting
        run.check(
            waiting is not None and not waiting.clients and not waiting.shutdown_armed, f"nobody waits: {waiting}"
        )
        run.sweep(mps, "complete", "multi-user server")
        for batch in batches.values():
            batch.leave()
        run.write("control-multi-user.txt", "\n".join(mps.lines()) + "\n")


def wrong_uid(run: Run) -> None:
    """Nobody's server, and then somebody else's."""
    with run.mps("other") as mps:
        replies = [f"no server: {mps.raw()!r}"]
        run.sweep(mps, "no_server", "no server")
        run.refused(mps, "no_server", "no server")
        run.check(not mps.servers(), f"no server was started by that: {mps.servers()}")
        service = mps.clients(0, "--as", "service", uid=USERS["daemon"]).wait()
        run.check(mps.clients_seen(), "control.log does name a client that came (or it would prove nothing)")
        run.sweep(mps, "uid_mismatch", "server of another uid")
        run.refused(mps, "uid_mismatch", "server of another uid")
        run.check(len(mps.servers()) == 1, "its server still runs")
        service.leave()
        until(lambda: not mps.ask(f"get_client_list {mps.servers()[0]}").split(), 10, strict=False)
        replies.append(f"a server without clients: {mps.raw(*mps.servers())!r}")
        run.write("replies.txt", "\n".join(replies) + "\n")


def waiting(run: Run) -> None:
    """A server of ours, too young at first; then a client of another uid waits for it to be shut down."""
    with run.mps("waited") as mps:
        service = mps.clients(0, "--as", "service").wait()
        run.sweep(mps, "server_unsettled", "server started a moment ago", settle="2m")
        stranger = mps.clients(0, "--as", "stranger", uid=USERS["nobody"])
        parts = run.parts([mps])
        polls: list[PollSnapshot] = []

        def look() -> PollSnapshot:
            polls.append(parts.poller.look())
            return polls[-1]

        seen = until(lambda: (said := look().daemons[0].waiting) is not None and said.shutdown_armed, 8, strict=False)
        run.check(
            seen, f"the shutdown for a client of another uid is seen in control.log: {polls[-1].daemons[0].waiting}"
        )
        said = polls[-1].daemons[0].waiting
        uids = {client.uid for client in said.clients} if said else None
        run.check(uids == {USERS["nobody"]}, f"who waits is known: {said}")
        run.check("ACTIVE" in mps.ask(f"get_server_status {mps.servers()[0]}"), "its status says ACTIVE all the while")
        run.sweep(mps, "foreign_client_waiting", "a client of another uid waits")
        stranger.kill()
        time.sleep(0.5)
        said = look().daemons[0].waiting
        run.check(said is not None and said.shutdown_armed, f"once it is dead the shutdown is still on: {said}")
        run.check(said is not None and not said.clients, "and nobody waits any more")
        run.sweep(mps, "foreign_client_waiting", "the client that waited has died")
        before = mps.servers()
        service.leave()
        until(lambda: mps.servers() != before, 4, strict=False)
        run.write("control-waiting.txt", "\n".join(mps.lines()) + "\n")
        after = look().daemons[0]
        documents = ",\n".join(to_json(poll).decode() for poll in (polls[0], *polls[-3:]))
        run.write("poll-waiting.json", f"[\n{documents}\n]\n")
        # A real daemon starts a server for the dead and then answers nobody, its own `quit` included.
        silent = after.waiting is None and after.unknown.get("waiting") == "daemon_silent"
        run.check(
            silent or (after.waiting is not None and not after.waiting.shutdown_armed),
            f"afterwards the shutdown is over, or nobody can say: {after.waiting} {after.unknown.get('waiting')}",
        )
        run.figures["waiting"] = {"before": before, "silent_after": silent}


def full(run: Run) -> None:
    """A server with no place left."""
    with run.mps("full") as mps:
        crowd = mps.clients(46, "--as", "crowd").wait(60)
        run.sweep(mps, "server_full", "full server")
        run.refused(mps, "server_full", "full server")
        cost(run, run.parts([mps]), "poll_46_clients")
        crowd.leave()


def replaced(run: Run) -> None:
    """A server that an administrator has replaced a moment ago: no client of ours, until it has settled."""
    with run.mps("replaced") as mps:
        mps.clients(0, "--as", "service").wait().leave()
        (old,) = mps.servers()
        until(lambda: not mps.ask(f"get_client_list {old}").split(), 10, strict=False)
        mps.replace_server()
        began, (new,) = time.monotonic(), mps.servers()
        run.check(new != old, f"the server was {old} and is {new}")
        run.sweep(mps, "server_unsettled", "server replaced a moment ago", settle="2m")
        run.refused(mps, "server_unsettled", "server replaced a moment ago", settle="2m")
        run.check(mps.servers() == [new], f"it still runs: {mps.servers()}")
        time.sleep(max(0.0, began + 3.0 - time.monotonic()))
        run.sweep(mps, "complete", "the same server once it has settled", settle="2s")
        run.write("control-replaced.txt", "\n".join(mps.lines()) + "\n")


def changed(run: Run) -> None:
    """The server is another one between two cells: no further client of ours."""
    with run.mps("changed") as mps:
        service = mps.clients(0, "--as", "service").wait()
        before = mps.clients_seen()
        done: list[str] = []

        def on_step(step: object) -> None:
            if isinstance(step, CellDone):
                run.say(f"cell {step.cell.cap}: {step.cell.unknown_reason or step.cell.state}")
                done.append(step.cell.cap)
                if len(done) == 1:
                    try:
                        service.leave()
                        mps.replace_server()
                    except Exception as error:  # noqa: BLE001 -- a sweep's watcher must not end the sweep
                        run.check(False, f"the server was replaced: {error!r}; servers {mps.servers()}")

        document = run.sweep(mps, "partial", "another server between two cells", on_step=on_step, caps=[100, 50, 25],
                             archive=run.work / "archive-changed")  # fmt: skip
        if document is None:
            return
        reasons = [cell.unknown_reason for cell in document.cells]
        run.check(reasons[0] is None, f"the first cell was measured: {reasons}")
        run.check(all(reason == "server_changed" for reason in reasons[1:]), f"no other: {reasons}")
        clients = came(before, mps.clients_seen()) - run.rehearsal  # there the new server came with one of its own
        run.check(clients == 1, f"control.log names one client since: {clients}")
        log = [line.get("reason") for line in run.log if line["event"] == "cell done"]
        run.check(log == reasons, f"the log says so too: {log}")
        with Watching(
            configure(run.work, [mps], archive=run.work / "archive-changed", enabled=False), rehearsal=run.rehearsal
        ) as daemon:
            until(lambda: any(str(line.get("event")).startswith("serving") for line in daemon.lines()), 20)
            series: list[str] = []

            def published() -> bool:
                series[:] = (line for line in daemon.metrics() if line.startswith("mpswatch_cap_unknown{"))
                return len(series) == 2

            until(published, 5, strict=False)
        run.check(
            len(series) == 2 and all('reason="server_changed"' in line for line in series), f"and the metrics: {series}"
        )
        run.write("sweep-changed.json", to_json(document, indent=1).decode())


SCENES: dict[str, Callable[[Run], None]] = {
    "waiting": waiting,
    "two_daemons": two_daemons,
    "wrong_uid": wrong_uid,
    "multi_user": multi_user,
    "replaced": replaced,
    "changed": changed,
    "full": full,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--rehearsal", action="store_true")
    parser.add_argument("--only", nargs="*", default=list(SCENES), choices=list(SCENES))
    options = parser.parse_args()
    if missing := lacks(rehearsal=options.rehearsal):
        print("this cannot run here:\n  " + "\n  ".join(missing), file=sys.stderr)
        return 2
    options.output.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="mw-"))
    work.chmod(0o755)
    shutil.copy(Path(__file__).resolve().parent / "light.py", work)
    (work / "light.py").chmod(0o644)
    run = Run(options.output, work, rehearsal=options.rehearsal)
    for name in options.only:
        run.say(f"--- {name}: {(SCENES[name].__doc__ or '').strip()}")
        try:
            SCENES[name](run)
        except Exception:  # noqa: BLE001 -- the others may still tell something
            run.check(False, f"{name} broke off: {traceback.format_exc()[-1500:]}")
    run.finish("identity.json")
    return 1


if __name__ == "__main__":
    sys.exit(main())

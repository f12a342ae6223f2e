"""The main job on a real GPU: services under MPS, a foreign tenant, `mpswatch run` with a sweep a minute.

usage: main_job.py OUTPUT_DIRECTORY [--sweeps N] [--crowd]

Writes to OUTPUT_DIRECTORY: the archived documents, one scrape, one poll, and `main-job.json` with the figures: TFLOPS
by cap, wall time of a sweep, seconds from attached to gone, resident memory, CPU of a poll
(with --crowd: of 46 processes).
Exits 1 when a cell was not managed, a count was wrong at any scrape after the first sweep, or a service died.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from datetime import datetime
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PORT = 10677


class Services:
    """A batch of light services; `alive()` reads what they said so far."""

    def __init__(self, number: int, period: float, pipe_directory: Path, log: Path, gpu: str | None = None) -> None:
        environment = os.environ | {"CUDA_MPS_PIPE_DIRECTORY": str(pipe_directory)}
        if gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = gpu
        self.said = log
        with log.open("wb") as out:
            self.program = subprocess.Popen(
                [sys.executable, str(HERE / "services.py"), str(number), str(period)],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
            )
        self.number = number

    def wait(self, seconds: float = 90) -> None:
        end = time.monotonic() + seconds
        while len(self.pids()) < self.number:
            if time.monotonic() > end:
                raise SystemExit(f"services did not come up: {self.said.read_text()[-2000:]}")
            time.sleep(0.2)

    def pids(self) -> list[int]:
        return [int(line.split()[1]) for line in self.said.read_text().splitlines() if line.startswith("ready ")]

    def dead(self) -> list[str]:
        return [line for line in self.said.read_text().splitlines() if line.startswith("dead ")]

    def stop(self) -> None:
        assert self.program.stdin is not None
        self.program.stdin.close()
        self.program.wait(30)


def control(pipe_directory: Path, command: str) -> str:
    environment = os.environ | {"CUDA_MPS_PIPE_DIRECTORY": str(pipe_directory)}
    answer = subprocess.run(
        ["nvidia-cuda-mps-control"],
        input=command + "\n",
        text=True,
        capture_output=True,
        env=environment,
        timeout=20,
        check=False,
    )
    return answer.stdout


def scrape(path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}{path}", timeout=5) as reply:  # our own daemon
        return reply.read().decode()


def values(text: str, name: str) -> list[tuple[str, float]]:
    found = []
    for line in text.splitlines():
        if line.startswith((name + "{", name + " ")):
            labels, value = line[len(name) :].rsplit(" ", 1)
            found.append((labels, float(value)))
    return found


def resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(int(fields[number]) for number in (11, 12, 13, 14)) / os.sysconf("SC_CLK_TCK")


def configure(work: Path, pipe: Path) -> Path:
    configuration = work / "mpswatch.yml"
    settings = {
        "daemons": [{"name": "h200", "pipe_directory": str(pipe)}],
        "poll": {"interval": "5s"},
        "sweep": {"interval": "60s", "jitter": "0s", "settle": "0s", "client": {"python": sys.executable}},
        "archive": {"directory": str(work / "archive")},
        "web": {"listen_address": f"127.0.0.1:{PORT}"},
        "log": {"format": "json"},
    }
    configuration.write_text(json.dumps(settings))
    return configuration


def command_sweep(work: Path, configuration: Path, figures: dict[str, object]) -> bool:
    """One sweep from the command line into an archive of its own; False when it was not complete."""
    began = time.monotonic()
    arguments = ["sweep", "--config.file", str(configuration), "--json", "--archive", str(work / "by-command")]
    answer = subprocess.run(
        [sys.executable, "-m", "mpswatch", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    figures.setdefault("command_sweep_seconds", []).append(round(time.monotonic() - began, 2))  # type: ignore[union-attr]
    if answer.returncode != 0:
        print(answer.returncode, answer.stdout[-12000:], answer.stderr[-4000:], flush=True)
    return answer.returncode == 0


def watch(output: Path, configuration: Path, sweeps: int, figures: dict[str, object]) -> list[str]:
    """Run the daemon until `sweeps` sweeps are done, scraping all the while; what was wrong, in words."""
    wrong: list[str] = []
    log = (output / "daemon.log").open("wb")
    daemon = subprocess.Popen(
        [sys.executable, "-m", "mpswatch", "run", "--config.file", str(configuration)],
        stdout=log,
        stderr=subprocess.STDOUT,
        cwd=ROOT,
        start_new_session=True,
    )
    began, after_first, text = time.monotonic(), False, ""
    try:
        scrapes = 0
        while time.monotonic() - began < sweeps * 60 + 60:
            time.sleep(2)
            if daemon.poll() is not None:
                raise SystemExit(
                    f"the daemon ended with {daemon.returncode}: {(output / 'daemon.log').read_text()[-3000:]}"
                )
            with contextlib.suppress(OSError):
                text = scrape()
                scrapes += 1
            done = sum(
                value for labels, value in values(text, "mpswatch_sweeps_total") if 'outcome="complete"' in labels
            )
            if "resident_after_start" not in figures and text:
                figures["resident_after_start"] = resident_mib(daemon.pid)
            if done >= 1:
                after_first = True
            if after_first:
                managed = [value for _, value in values(text, "mpswatch_managed_clients")]
                foreign = [value for _, value in values(text, "mpswatch_foreign_tenants")]
                if managed != [2.0] or foreign != [1.0]:
                    wrong.append(f"at {time.monotonic() - began:.0f} s managed {managed}, foreign {foreign}")
            if done >= sweeps:
                break
        figures["scrapes"], figures["sweeps_complete"] = scrapes, done
        figures["resident_after_sweeps"] = resident_mib(daemon.pid)
        figures["daemon_cpu_seconds"], figures["daemon_seconds"] = cpu_seconds(daemon.pid), time.monotonic() - began
        (output / "scrape.txt").write_text(scrape())
        (output / "latest.json").write_text(scrape("/api/v1/latest"))
        (output / "page.html").write_text(scrape("/"))
        if done < sweeps:
            wrong.append(f"{done} of {sweeps} sweeps were complete")
    finally:
        daemon.send_signal(signal.SIGTERM)
        figures["daemon_exit"] = daemon.wait(60)
    return wrong


def read_documents(output: Path, work: Path, figures: dict[str, object]) -> list[str]:
    wrong: list[str] = []
    runs = sorted((work / "archive" / "runs").glob("*.json"))
    by_cap: dict[str, list[float]] = {}
    held: list[float] = []
    wall: list[float] = []
    seen: dict[str, set[int]] = {}
    for path in runs:
        shutil.copy(path, output)
        document = json.loads(path.read_text())
        began, ended = (datetime.fromisoformat(document[key]) for key in ("started_at", "finished_at"))
        wall.append((ended - began).total_seconds())
        for cell in document["cells"]:
            if (
                cell["self_was_managed"] is not True
                or cell["state"] != "measured"
                or cell["sm_count_as_expected"] is not True
            ):
                wrong.append(
                    f"{path.name} cap {cell['cap']}: {cell['state']} {cell['unknown_reason']} {cell['failure']}"
                )
                continue
            by_cap.setdefault(cell["cap"], []).append(cell["tflops"])
            seen.setdefault(cell["cap"], set()).add(cell["sm_count"])
            if cell["timings"]["attached_to_gone"] is not None:
                held.append(cell["timings"]["attached_to_gone"])
    figures["tflops_by_cap"] = {cap: [round(number, 1) for number in numbers] for cap, numbers in by_cap.items()}
    figures["sm_count_by_cap"] = {cap: sorted(counts) for cap, counts in seen.items()}
    figures["sweep_wall_seconds"] = wall
    figures["attached_to_gone_seconds"] = [round(number, 3) for number in held]
    return wrong


def measure_poll(work: Path, pipe: Path, looks: int, figures: dict[str, object], key: str) -> None:
    """Ask measure_poll.py, a process of its own."""
    answer = subprocess.run(
        [sys.executable, str(HERE / "measure_poll.py"), str(pipe), str(looks), str(work / "poll.json")],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        check=False,
    )
    figures[key] = json.loads(answer.stdout) if answer.returncode == 0 else answer.stderr[-2000:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--sweeps", type=int, default=3)
    parser.add_argument("--crowd", action="store_true")
    options = parser.parse_args()
    output: Path = options.output
    output.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="mpswatch-main-job-"))
    pipe, logs, nowhere = work / "mps", work / "log", work / "nowhere"
    for directory in (pipe, logs, nowhere):
        directory.mkdir()
    os.environ["CUDA_MPS_LOG_DIRECTORY"] = str(logs)
    subprocess.run(
        ["nvidia-cuda-mps-control", "-d"], env=os.environ | {"CUDA_MPS_PIPE_DIRECTORY": str(pipe)}, check=True
    )
    figures: dict[str, object] = {}
    wrong: list[str] = []
    batches: list[Services] = []
    try:
        began = time.monotonic()
        batches = [Services(2, 0.05, pipe, work / "managed.txt"), Services(1, 0.05, nowhere, work / "foreign.txt")]
        for batch in batches:
            batch.wait()
        print(f"services up after {time.monotonic() - began:.1f} s", flush=True)
        configuration = configure(work, pipe)
        if not all(command_sweep(work, configuration, figures) for _ in range(2)):
            raise SystemExit("a sweep from the command line was not complete: see above")
        wrong += watch(output, configuration, options.sweeps, figures)
        wrong += read_documents(output, work, figures)
        wrong += [f"a service died: {line}" for batch in batches for line in batch.dead()]
        measure_poll(work, pipe, 50, figures, "poll_3_processes")
        shutil.copy(work / "poll.json", output / "poll.json") if (work / "poll.json").exists() else None
        if options.crowd:
            batches += [Services(38, 0, pipe, work / "crowd.txt"), Services(5, 0, nowhere, work / "strangers.txt")]
            for batch in batches[2:]:
                batch.wait()
            measure_poll(work, pipe, 50, figures, "poll_46_processes")
        wrong += [f"a service died: {line}" for batch in batches for line in batch.dead()]
        figures["services_alive"] = sum(len(batch.pids()) - len(batch.dead()) for batch in batches)
    finally:
        for batch in batches:
            batch.stop()
        with contextlib.suppress(OSError):
            (output / "control.log.tail").write_text("\n".join((logs / "control.log").read_text().splitlines()[-60:]))
        control(pipe, "quit")
    figures["wrong"] = wrong
    (output / "main-job.json").write_text(json.dumps(figures, indent=1))
    print(json.dumps(figures, indent=1))
    shutil.rmtree(work, ignore_errors=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

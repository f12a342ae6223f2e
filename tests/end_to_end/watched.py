"""One daemon that is watched through a series of faults: what metrics, page, document and log say of each."""

from __future__ import annotations

import html
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from mpswatch.rehearsal.stack import Stack

HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("end_to_end_conftest", HERE / "conftest.py")
_shared = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = _shared
_spec.loader.exec_module(_shared)

Daemon, SETTINGS, until = _shared.Daemon, _shared.SETTINGS, _shared.wait_until

OF_NO_FAULT = {
    "a poll takes longer than poll.interval",  # 0.3 s here, on a machine that may be busy
    "sweeps will not run: sweep.enabled is false; set sweep.enabled: true",
}
"""Warnings that these daemons give when all is well."""


def run_of(path):
    """An archived run as plain data."""
    return json.loads(path.read_text())


def command(stage, *arguments, environment):
    """Run an `mpswatch` command on the stage's stack."""
    return subprocess.run(
        [sys.executable, "-m", "mpswatch", *arguments, "--config.file", str(stage.settings(**stage.sections))],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


def is_part(wanted, found):
    """Whether a document holds that: of an object the keys that are named, of a list each item, else the value.

    `...` is any value but null, a function what it returns True for.
    """
    if wanted is ...:
        return found is not None
    if callable(wanted):
        return wanted(found)
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            key in found and is_part(value, found[key]) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and len(wanted) == len(found) and all(map(is_part, wanted, found))
    return wanted == found


class Watched:
    """A daemon, and the four places where it speaks; of log and journal, what came since this was made."""

    def __init__(self, daemon, stack=None):
        self.daemon = daemon
        self.stack = stack
        self._lines = len(daemon.log_lines())
        self._events = len(daemon.journal())

    def says(self, *, metrics, page, document, log, journal=(), seconds=20.0):
        """Metrics, page, document and log all say so, in `seconds` at the latest: the columns of docs/operations.md.

        `metrics`: by sample, as in `poll_success{source="mps"}`, its value; `...` for any; None where there is none;
        a reason where there is none and `mpswatch_unknown` says why. `page`: words of its text. `document`: a part of
        /api/v1/latest (`is_part`). `log`: the fields of lines that came once each, of which texts may be a part; none:
        nothing of level warning came. `journal`: the kinds of events that came.
        """
        end = time.monotonic() + seconds
        while wrong := [
            *self._wrong_metrics(metrics),
            *(f"not on the page: {words!r} in {self.text()}" for words in page if words not in self.text()),
            *([] if is_part(document, found := self.document()) else [f"not in the document: {document} in {found}"]),
            *self._wrong_log(log),
            *(f"not in the journal: {kind}" for kind in journal if kind not in self.happened()),
        ]:
            assert time.monotonic() < end, "\n".join(wrong)
            time.sleep(0.1)

    def _wrong_metrics(self, metrics):
        samples = self.daemon.metrics()
        for sample, wanted in metrics.items():
            name, _, rest = sample.partition("{")
            labels = dict(re.findall(r'(\w+)="([^"]*)"', rest))
            found = [v for key, v in samples.get(f"mpswatch_{name}", {}).items() if labels.items() <= dict(key).items()]
            if isinstance(wanted, str):
                reasons = self.reasons(name, **labels)
                if found or reasons != {wanted}:
                    yield f"{sample}: {found}, absent for {reasons}, not {wanted}"
            elif wanted is ...:
                if not found:
                    yield f"{sample} is absent"
            elif found != ([] if wanted is None else [wanted]):
                yield f"{sample}: {found}, not {wanted}"

    def _wrong_log(self, log):
        lines = self.daemon.log_lines()[self._lines :]
        for fields in log:
            found = [line for line in lines if all(str(text) in str(line.get(key)) for key, text in fields.items())]
            if len(found) != 1:
                yield f"not once in the log: {fields}, but {found}"
        if not log:
            said = [
                line for line in lines if line["level"] in {"warning", "error"} and line["event"] not in OF_NO_FAULT
            ]
            yield from (f"in the log: {line}" for line in said)

    def happened(self):
        """The kinds of the journal's events."""
        return [event["kind"] for event in self.daemon.journal()[self._events :]]

    def text(self):
        """What is to be read on the page."""
        seen = re.sub(r"<(script|style)\b.*?</\1>|<[^>]+>", " ", self.page(), flags=re.DOTALL)
        return " ".join(html.unescape(seen).split())

    def value(self, name, **labels):
        return self.daemon.value(f"mpswatch_{name}", **labels)

    def reasons(self, quantity, **labels):
        """Why `quantity` is absent, as `mpswatch_unknown` says."""
        wanted = {"quantity": quantity, **labels}.items()
        found = (dict(key) for key in self.daemon.metrics().get("mpswatch_unknown", {}))
        return {labels["reason"] for labels in found if wanted <= labels.items()}

    def page(self):
        return self.daemon.get("/").text

    def document(self):
        return self.daemon.get("/api/v1/latest").json()

    def poll(self):
        return self.document()["poll"]

    def said(self, event, **fields):
        """Lines of the log since this test began."""
        lines = self.daemon.log_lines()[self._lines :]
        return [line for line in lines if line.get("event") == event and fields.items() <= line.items()]

    def until(self, what, seconds=10.0):
        return until(what, seconds)

    def refuses(self, reason):
        """A sweep that is asked for now is refused for that reason, in metric, page, document, journal and log."""

        def count():  # on this GPU, or on one without a uuid while none can be looked at
            found = self.daemon.metrics().get("mpswatch_sweep_refusals_total", {})
            return sum(value for key, value in found.items() if ("reason", reason) in key)

        before = count()
        self.daemon.signal(signal.SIGUSR1)
        until(lambda: count() > before)
        assert self.daemon.value("mpswatch_last_sweep_refused", reason=reason) == 1
        assert reason in self.page()
        assert reason in {refused["event"]["reason"] for refused in self.document()["refused"]}
        until(lambda: self.daemon.events("sweep_refused")[-1]["reason"] == reason)
        # once, when it changes: another fault before this one may have had the same reason
        assert reason in {line.get("reason") for line in self.daemon.said("no sweep")}


class Stage:
    """A rehearsal and a daemon on it, for all tests of a module."""

    def __init__(self, **sections):
        self.folder = Path(tempfile.mkdtemp(prefix="mpsw-"))
        self.folder.chmod(0o755)
        self.stack = Stack(self.folder / "stack")
        self.sections = sections
        self.daemon = None

    def __enter__(self):
        self.stack.start()
        self.add_services()
        self.stack.add_foreign("notebook", 658)
        self.control_program = self.folder / "nvidia-cuda-mps-control"
        self.control_program.symlink_to(self.stack.control_program)
        self.daemon = self.start(**self.sections)
        return self

    def add_services(self):
        """The two services that die with their server."""
        self.stack.add_service("chat", memory_mib=636, busy=False)
        self.stack.add_service("embedding", memory_mib=412, busy=False)

    def settings(self, **sections):
        daemons = [
            {
                "name": "stack",
                "pipe_directory": str(self.stack.pipe_directory),
                "log_directory": str(self.stack.log_directory),
            }
        ]
        given = {
            "daemons": daemons,
            "archive": {"directory": str(self.folder / "archive")},
            "mps": {"control_program": str(self.control_program)},
            "gpu": {"source": "nvidia-smi", "nvidia_smi": str(self.stack.nvidia_smi)},
        }
        merged = {**SETTINGS}
        for part in (given, sections):
            for name, section in part.items():
                merged[name] = {**merged.get(name, {}), **section} if isinstance(section, dict) else section
        path = self.folder / "mpswatch.yml"
        path.write_text(yaml.safe_dump(merged))
        return path

    def start(self, environment=None, **sections):
        path = self.settings(**sections)
        archive = Path(yaml.safe_load(path.read_text())["archive"]["directory"])
        argv = [sys.executable, str(HERE / "rehearse.py"), str(path)]
        return Daemon(argv, archive, self.folder / f"log-{os.urandom(4).hex()}", environment or {})

    def well(self):
        """Whether everything is as it was at first."""
        watched = Watched(self.daemon)
        return (
            watched.value("managed_clients", daemon="stack") == 2
            and watched.value("foreign_tenants") == 1
            and watched.value("foreign_memory_bytes") == 658 << 20
            and watched.value("mps_server_state", state="active") == 1
        )

    def calm(self):
        """Take back what a test had the stack do, and wait until the daemon sees it so."""
        self.stack.tell("honest")
        self.stack.tell("smi", how="")
        self.stack.tell("attach", how="")
        self.stack.tell("state", state="")
        until(self.well)

    def __exit__(self, *_):
        if self.daemon is not None:
            self.daemon.finish()
        unsafe = self.stack.unsafe_ends()
        self.stack.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        assert unsafe == []

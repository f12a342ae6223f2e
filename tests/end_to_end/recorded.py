"""What the recordings say that the control program answered, and a rehearsal that is put into the same state."""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import yaml

from mpswatch.rehearsal import Stack, gpus

HERE = Path(__file__).parent
RECORDINGS = HERE.parent / "recordings" / "h200-580-20261130"
GOLDEN = HERE / "golden"
_spec = importlib.util.spec_from_file_location("end_to_end_conftest_recorded", HERE / "conftest.py")
_shared = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = _shared
_spec.loader.exec_module(_shared)
until = _shared.wait_until

NO_TLS = ssl.create_default_context()
"""Made once: one for each scrape costs more than the scrape."""

PROGRAM = "/srv/app/.venv/bin/python3"
"""What the recorded services and the foreign tenant are, as the driver names them."""

_QUESTION = re.compile(
    r"^\$ (?:echo '(?P<piped>.*)' \| nvidia-cuda-mps-control   \[rc=\d+ \d+ms\]|(?P<bare>[a-z_ 0-9]+))$"
)
_NO_ANSWER = re.compile(r"^(\$ |#|==|--|\{|\[\d{4}|\d+ ctx|\d+, |\s+\d+ |server=|ctl=|$)")
"""How the lines begin that stand behind an answer in a recording and are none of it."""

_OUR_OWN = re.compile(
    r"^(mpswatch_(?:start_time_seconds|archive_bytes|archive_last_success_timestamp_seconds|"
    r"system_memory_(?:total|available)_bytes|poll_(?:duration|last_success_timestamp)_seconds|cap_tflops|cap_verdict|"
    r"sweep_duration_seconds|sweep_last_(?:run|success)_timestamp_seconds)(?:{.*})?) \S+$",
    re.MULTILINE,
)
"""What a scrape says of this run and this host; a golden one has an X in its place."""


def text_of(name):
    return (RECORDINGS / f"{name}.txt").read_text()


def recorded(name):
    """(question, answer) of a recording, in order."""
    found, lines = [], text_of(name).splitlines()
    for number, line in enumerate(lines):
        if asked := _QUESTION.match(line):
            answer = itertools.takewhile(lambda said: not _NO_ANSWER.match(said), lines[number + 1 :])
            found.append((asked["piped"] or asked["bare"], "\n".join(answer)))
        elif " => " in line:
            question, _, answer = line.partition(" => ")
            found.append((question, answer.replace("|", "\n")))
    return found


def words(text, names):
    """`text` line by line as words, neutral in what no two stacks share: uuids, the namespace, `names` (a pid each)."""
    text = re.sub(r"GPU-[0-9a-f-]+", "GPU", text).replace(gpus.NAME, "NVIDIA H200")
    namespace = str(Path("/proc/self/ns/pid").stat().st_ino)
    names = {"4026531836": "NAMESPACE", namespace: "NAMESPACE", **{str(pid): name for pid, name in names.items()}}
    lines = [re.sub(r"\d+", lambda number: names.get(number[0], number[0]), line).split() for line in text.splitlines()]
    return [line for line in lines if line]


class Scene:
    """A rehearsal that is put into recorded states, and a daemon that watches it."""

    def __init__(self, **options):
        self.folder = Path(tempfile.mkdtemp(prefix="mpsw-"))
        self.folder.chmod(0o755)
        self.stack = Stack(self.folder / "stack", **options)
        self.daemon = None
        self.known = {}

    def __enter__(self):
        self.stack.start()
        return self

    def __exit__(self, *_):
        if self.daemon is not None:
            self.daemon.finish()
        unsafe = self.stack.unsafe_ends()
        self.stack.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        assert unsafe == []

    # --- as recorded -----------------------------------------------------------------------------------

    def service(self, recorded_pid=None, *, program=PROGRAM, **looks):
        """A client of the daemon in the place of the recorded one."""
        looks = {"busy": False, **looks}
        pid = self.stack.add_service("app", arguments=(program, "service.py"), **looks)
        self.known[pid] = recorded_pid
        return pid

    def foreign(self, recorded_pid=None):
        self.known[self.stack.add_foreign("app", 658, arguments=(PROGRAM, "light.py"))] = recorded_pid

    def ask(self, *questions, pipe=None):
        """What the control program answers to them on one connection."""
        return subprocess.run(
            [self.stack.control_program],
            input="".join(f"{question}\n" for question in questions),
            env={"CUDA_MPS_PIPE_DIRECTORY": str(pipe or self.stack.pipe_directory)},
            check=False,
            capture_output=True,
            text=True,
            timeout=10,
        ).stdout

    def answers_as(self, name, which=slice(None), *, server=None):
        """It answers what was recorded to these questions; `server` is the recorded pid of the one that runs."""
        if server is not None:
            self.known[self.stack.server_pid] = server
        exchanges = recorded(name)[which]
        assert exchanges
        for question, answer in exchanges:
            self.answers([question], answer)

    def answers(self, questions, answer, *, pipe=None):
        """It answers so on one connection: each pid in the place of its own, and columns of other widths."""
        ours = {theirs: pid for pid, theirs in self.known.items()}
        asked = [re.sub(r"\d+", lambda pid: str(ours.get(int(pid[0]), pid[0])), line) for line in questions]
        asked = [re.sub(r"GPU-[0-9a-f-]+", gpus.uuid(0), line) for line in asked]
        said = self.ask(*asked, pipe=pipe)
        wanted = words(answer, {theirs: f"process-{theirs}" for theirs in ours})
        assert words(said, {pid: f"process-{theirs}" for pid, theirs in self.known.items()}) == wanted, questions

    # --- what is published -----------------------------------------------------------------------------

    def watch(self, *, daemons=None, rehearsed=True, **sections):
        """Start a daemon on the stack as it is now; `daemons` are pipe directories by name.

        Without `rehearsed` it is `mpswatch run`, for pipe directories of no rehearsal.
        """
        given = {
            "host": "recorded",
            "daemons": [
                {"name": name, "pipe_directory": str(pipe), "log_directory": str(pipe.with_name("log"))}
                for name, pipe in (daemons or {"stack": self.stack.pipe_directory}).items()
            ],
            "archive": {"directory": str(self.folder / "archive")},
            "mps": {"control_program": str(self.stack.control_program)},
            "gpu": {"source": "nvidia-smi", "nvidia_smi": str(self.stack.nvidia_smi)},
            "sweep": {"enabled": False},
        }
        settings = {**_shared.SETTINGS}
        for part in (given, sections):
            for name, section in part.items():
                settings[name] = {**settings.get(name, {}), **section} if isinstance(section, dict) else section
        path = self.folder / "mpswatch.yml"
        path.write_text(yaml.safe_dump(settings))
        program = [str(HERE / "rehearse.py")] if rehearsed else ["-m", "mpswatch", "run", "--config.file"]
        argv = [sys.executable, *program, str(path)]
        self.daemon = _shared.Daemon(argv, self.folder / "archive", self.folder / "log", {})

    def swept(self, times=1, *, outcome="complete"):
        """Wait for the first sweep, which a new daemon makes by itself, or for the one that was asked for."""
        until(lambda: self._attempts(outcome) == times)

    def sweep(self):
        """Ask for one more sweep and wait until it is over."""
        before = self._attempts("complete")
        self.daemon.signal(signal.SIGUSR1)
        self.swept(before + 1)

    def _attempts(self, outcome):
        attempts = re.compile(rf'^mpswatch_sweeps_total{{.*uuid="G.*outcome="{outcome}"}} (\d+)$', re.M)
        return float(until(lambda: attempts.search(self.scrape()))[1])

    def scrape(self):
        return httpx.get(f"{self.daemon.url}/metrics", timeout=10, verify=NO_TLS).text

    def samples(self):
        """The scrape without comments, and with an X for what differs from run to run and from host to host."""
        text = "".join(f"{line}\n" for line in self.scrape().splitlines() if line.startswith("mpswatch_"))
        text = text.replace(f'server_uid="{os.getuid()}"', 'server_uid="0"')  # servers are root's where we are
        return _OUR_OWN.sub(
            r"\1 X", re.sub(r'version="[0-9][^"]*",python_version="[^"]*"', 'version="X",python_version="X"', text)
        )

    def shows(self, name):
        """The daemon comes to publish the golden scrape of this moment, and still does so a poll later."""
        golden = GOLDEN / f"{name}.txt"
        if os.environ.get("MPSWATCH_WRITE_GOLDEN") == "1":
            for _ in range(4):
                self.polled()
            golden.write_text(self.samples())
        wanted, end = golden.read_text(), time.monotonic() + 15
        while self.samples() != wanted and time.monotonic() < end:
            time.sleep(0.2)
        self.polled()
        assert self.samples() == wanted

    def polled(self):
        """Wait for a poll that has ended since."""
        before = self._last_poll()
        until(lambda: self._last_poll() != before)

    def _last_poll(self):
        told = re.search(r'^mpswatch_poll_last_success_timestamp_seconds{source="nvidia-smi".*$', self.scrape(), re.M)
        return told and told[0]

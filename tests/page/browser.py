"""A real Chromium, spoken to over its debugging pipe: no driver program, no library, no port.

Messages are JSON, ended by a zero byte; Chromium reads them from descriptor 3 and writes to 4.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import subprocess
import tempfile
import time
from pathlib import Path

SWITCHES = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio",
    "--remote-debugging-pipe",
)  # fmt: skip


class Browser:
    """One browser with one page. Requests that the page makes are in `requests`, complaints in `complaints`."""

    def __init__(self) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="mpsw-chromium-", ignore_cleanup_errors=True)
        reads, self._to = os.pipe()
        self._from, writes = os.pipe()
        command = f'exec chromium {" ".join(SWITCHES)} --user-data-dir="$1" about:blank 3<&{reads} 4>&{writes}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, "chromium", self._profile.name],
            pass_fds=(reads, writes),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(reads)
        os.close(writes)
        self._numbers = itertools.count(1)
        self._left = b""
        self._session: str | None = None
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._loaded = False
        targets = self._call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            self._session = None
            self._call("Browser.close")
        os.close(self._to)
        os.close(self._from)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._profile.cleanup()

    def show(self, width: int, height: int, *, dark: bool = False, scale: float = 1.0) -> None:
        """Choose the window and the reader's colour scheme."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def scripts(self, *, allowed: bool) -> None:
        self._call("Emulation.setScriptExecutionDisabled", value=not allowed)

    def offline(self, *, offline: bool) -> None:
        self._call(
            "Network.emulateNetworkConditions", offline=offline, latency=0, downloadThroughput=-1, uploadThroughput=-1
        )

    def open(self, url: str) -> None:
        self._loaded = False
        self._call("Page.navigate", url=url)
        until = time.monotonic() + 30
        while not self._loaded:
            self._receive(until)

    def run(self, script: str) -> object:
        """The value of an expression in the page; a promise is waited for."""
        answer = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def wait_for(self, script: str, seconds: float = 20.0) -> None:
        until = time.monotonic() + seconds
        while not self.run(script):
            assert time.monotonic() < until, script
            time.sleep(0.1)

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode={"Tab": 9}[key])

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write what is shown (or the whole page) as PNG."""
        answer = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _call(self, method: str, **parameters: object) -> dict:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + 60
        while True:
            answer = self._receive(until)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def _receive(self, until: float) -> dict:
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._from], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise TimeoutError("Chromium does not answer")
            data = os.read(self._from, 1 << 20)
            if not data:
                raise TimeoutError("Chromium has gone")
            self._left += data
        line, self._left = self._left.split(b"\0", 1)
        message = json.loads(line)
        parameters = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Log.entryAdded":
                if parameters["entry"]["level"] in ("error", "warning"):
                    self.complaints.append(parameters["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(parameters["exceptionDetails"]))
        return message

"""Asks NVML in a process of its own, which has the stub on its library path: one JSON line in, one out."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec

from mpswatch.gpu import GpuError, NvmlSource
from mpswatch.proc import Processes

source = NvmlSource()
for line in sys.stdin:
    request = json.loads(line)
    try:
        if request["do"] == "new":
            source = NvmlSource(Processes(Path(request["proc"])), reopen_seconds=request["reopen_seconds"])
            answer = {}
        elif request["do"] == "look":
            answer = {"looks": msgspec.to_builtins(source.look())}
        else:
            answer = {"conditions": msgspec.to_builtins(source.conditions(request["uuid"]))}
    except GpuError as error:
        answer = {"error": error.reason.value, "detail": error.detail, "remedy": error.remedy}
    print(json.dumps(answer), flush=True)

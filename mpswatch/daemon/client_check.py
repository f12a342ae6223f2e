"""Whether the client's interpreter has what it computes with: asked by running it, without touching CUDA."""

from __future__ import annotations

import json
import os
import shutil

from mpswatch.config import Config
from mpswatch.daemon.parts import client_python
from mpswatch.documents import Reason
from mpswatch.process.ask import ProgramError, ask
from mpswatch.sweep.permit import Refusal

# find_spec looks for the package without running it: importing torch takes seconds and may start the driver
_QUESTION = """
import importlib.util, json, sys
print(json.dumps({"python": sys.version.split()[0], "found": importlib.util.find_spec(sys.argv[1]) is not None}))
"""
_DEADLINE = 20.0


def check_client(config: Config, *, simulated: bool) -> Refusal | str:
    """What the interpreter said, in words, or why no sweep can run with it."""
    if config.sweep.client.runtime != "process":
        return _elsewhere(config)
    python, library = client_python(config), "numpy" if simulated else "torch"
    environment = {**os.environ, **config.sweep.client.environment}
    try:
        answer = ask([python, "-c", _QUESTION, library], deadline=_DEADLINE, env=environment)
        said = json.loads(answer.stdout)
        version, found = str(said["python"]), bool(said["found"])
    except ProgramError as error:
        return Refusal(
            reason=Reason.CLIENT_PROGRAM_MISSING,
            detail=f"the measuring client's interpreter cannot be used: {error.detail}",
            remedy="set sweep.client.python to a Python that has torch",
        )
    except (ValueError, KeyError, TypeError):
        words = (answer.stderr or answer.stdout).decode("utf-8", "replace").strip().splitlines()
        return Refusal(
            reason=Reason.CLIENT_PROGRAM_MISSING,
            detail=f"{python} does not answer as a Python does: {words[-1] if words else 'it says nothing'}"[:300],
            remedy="set sweep.client.python to a Python that has torch",
        )
    if not found:
        return Refusal(
            reason=Reason.CLIENT_IMPORT_FAILED,
            detail=f"{python} (Python {version}) has no {library}",
            remedy=f"{python} -m pip install {library}, or set sweep.client.python to a Python that has it",
        )
    return f"{python} (Python {version}) has {library}"


def _elsewhere(config: Config) -> Refusal | str:
    """A container's or a command's: that its program, image or container is there. What is in it shows when it runs."""
    client = config.sweep.client
    program = client.command[0] if client.runtime == "command" else client.program or client.runtime
    if shutil.which(program) is None:
        detail = f"the measuring client's program {program} is not there"
        return Refusal(reason=Reason.CLIENT_PROGRAM_MISSING, detail=detail, remedy="install it, or set sweep.client")
    if client.runtime == "command":
        return f"{program} is there"
    kind, name = ("image", client.image) if client.image is not None else ("container", client.container)
    try:
        answer = ask([program, kind, "inspect", str(name)], deadline=_DEADLINE, env=dict(os.environ), limit=8 << 20)
    except ProgramError as error:
        detail = f"{program} does not answer: {error.detail}"
        return Refusal(reason=Reason.CLIENT_PROGRAM_MISSING, detail=detail, remedy="start it, or set sweep.client")
    if answer.returncode != 0:
        return Refusal(
            reason=Reason.CLIENT_PROGRAM_MISSING,
            detail=f"{program} knows no {kind} {name}",
            remedy=f"{program} pull {name}" if kind == "image" else f"start the container {name}",
        )
    return f"{program} has the {kind} {name}"

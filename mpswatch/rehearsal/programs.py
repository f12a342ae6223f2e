"""The control program and nvidia-smi as executables.

A wheel's data files have no executable bit, so they are written into the stack's directory. Each poll runs one,
so they import nothing but `_socket`: about 15 ms, where a plain interpreter takes twice that.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mpswatch.rehearsal.layout import Layout

CONTROL = """\
import _socket, os, sys
pipe = os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or {default!r}
program = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
try:
    os.stat(pipe + "/rehearsal")  # a real daemon is never spoken to
    program.connect(pipe + "/control")
except OSError:
    os.write(1, b"Cannot find MPS control daemon process\\n")
    sys.exit(1)
try:
    if arguments := sys.argv[1:]:  # protocol 3 is asked by arguments
        program.send(" ".join(arguments).encode() + b"\\n")
    while not arguments and (commands := os.read(0, 65536)):
        program.send(commands)
    program.shutdown(_socket.SHUT_WR)
    while reply := program.recv(65536):
        while reply:
            reply = reply[os.write(1, reply):]
except (BrokenPipeError, ConnectionError):
    pass
"""

SMI = """\
import _socket, os, sys
program = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
try:
    program.connect({smi!r})
    program.send(b"\\0".join(os.fsencode(argument) for argument in sys.argv[1:]))
    program.shutdown(_socket.SHUT_WR)
    reply = b""
    while part := program.recv(65536):
        reply += part
except OSError:
    reply = b"9\\nNVIDIA-SMI has failed because the rehearsal stack is gone.\\n"
status, _, output = reply.partition(b"\\n")
while output:
    output = output[os.write(1, output):]
os._exit(int(status or b"1"))
"""


def write(layout: Layout, pipe: Path) -> None:
    """Write both programs; `pipe` is where the control program looks when no environment variable says."""
    layout.control_program.parent.mkdir(exist_ok=True)
    _write(layout.control_program, CONTROL.format(default=str(pipe)))
    _write(layout.nvidia_smi, SMI.format(smi=str(layout.smi)))


def _write(path: Path, body: str) -> None:
    # -I -S -E: neither site-packages nor the environment is looked at, which is half the start-up time.
    shebang = f"#!{sys.executable} -ISE\n"
    if " " in sys.executable or len(shebang) > 120:
        # The kernel cuts a shebang at a space and at 127 bytes: let a shell find the interpreter.
        shebang = f"#!/bin/sh\n'''exec' \"{sys.executable}\" -ISE \"$0\" \"$@\" # '''\n"
    path.write_text(shebang + body)
    path.chmod(0o755)

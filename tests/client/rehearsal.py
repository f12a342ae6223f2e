"""The smallest stack that the numpy client can attach to: `python rehearsal.py DIR`. For the tests of the client.

It keeps a journal in DIR/journal.jsonl: who attached, who left, and who left with work in flight, which is what would
have taken a neighbour down. A file DIR/mode holding `hang`, `refuse`, `full`, `close`, `nonsense` or `late` changes
how the next client is received.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
import threading
import time
from pathlib import Path

TOTAL = 132


def serve(directory: Path) -> None:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    os.chdir(directory)  # the path of a socket may have 107 bytes only
    listening.bind("rehearsal")
    listening.listen(64)
    journal = (directory / "journal.jsonl").open("a", buffering=1)
    while True:
        connection, _ = listening.accept()
        threading.Thread(target=receive, args=(connection, directory, journal), daemon=True).start()


def receive(connection: socket.socket, directory: Path, journal: object) -> None:
    pid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]

    def note(what: str, **more: object) -> None:
        journal.write(json.dumps({"what": what, "pid": pid, **more}) + "\n")

    mode_file = directory / "mode"
    mode = mode_file.read_text().strip() if mode_file.exists() else "normal"
    with connection, contextlib.suppress(OSError):
        cap = json.loads(connection.recv(4096))["attach"]["cap"]
        if mode == "hang":
            note("hung")
            while mode_file.read_text().strip() == "hang":
                time.sleep(0.02)
        if mode == "late":
            time.sleep(1.0)
        if mode == "close":
            return
        if mode in ("refuse", "full"):
            code = 808 if mode == "full" else 805
            connection.sendall(json.dumps({"refused": {"code": code, "detail": mode}}).encode() + b"\n")
            return
        if mode == "nonsense":
            connection.sendall(b"no JSON\n")
            return
        share = float(cap) / 100
        reply = {
            "sm_count": max(8, int(TOTAL * share) // 2 * 2),
            "sm_total": TOTAL,
            "device_uuid": "GPU-00000000-0000-0000-0000-000000000000",
            "device_name": "rehearsal",
            "share": share,
        }
        note("attached", cap=cap)
        connection.sendall(json.dumps({"attached": reply}).encode() + b"\n")
        in_flight = most = pieces = 0
        while chunk := connection.recv(4096):
            for sign in chunk.decode("ascii"):
                in_flight += 1 if sign == "+" else -1
                pieces += sign == "+"
                most = max(most, in_flight)
        note("left", in_flight=in_flight, most=most, pieces=pieces)


if __name__ == "__main__":
    serve(Path(sys.argv[1]).absolute())

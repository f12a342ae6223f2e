"""A client as the measuring one attaches, for the tests: `python client.py PIPE_DIRECTORY CAP SAYS [UID]`.

It prints the stack's reply, writes SAYS (`+` and `-`) on its connection, and leaves at the end of standard input.
"""

import json
import os
import socket
import sys

pipe_directory, cap, says, *uid = sys.argv[1:]
if uid:
    os.setgroups([])
    os.setgid(int(uid[0]))
    os.setuid(int(uid[0]))
connection = socket.socket(socket.AF_UNIX)
connection.connect(f"{pipe_directory}/rehearsal")
connection.sendall(json.dumps({"attach": {"cap": cap}}).encode() + b"\n")
os.write(1, b"asked\n")
os.write(1, connection.recv(4096) or b"hung up\n")
connection.sendall(says.encode())
sys.stdin.read()

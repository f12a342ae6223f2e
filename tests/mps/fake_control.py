#!/usr/bin/env -S python3 -S -E
"""A control program that plays a scenario, and is strict: whatever is not a query is a violation that it writes down.

The scenario is `fake.json` in the pipe directory: {"mode", "connections": [{"servers": {pid: {"clients", "state"}},
"percentage", "ps"}]}; each connection plays the next one, and the last one for ever. Asked by arguments it is a daemon
of protocol 3 and answers the texts of "server list" and "client list" of the connection, as they are.
"""

import json
import os
import sys
import time
from pathlib import Path

directory = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
scenario = json.loads((directory / "fake.json").read_text())
mode = scenario.get("mode", "honest")
by_arguments = " ".join(sys.argv[1:])
asked = by_arguments or sys.stdin.buffer.read().decode("ascii")
with (directory / "asked.log").open("a") as log:
    log.write(
        json.dumps({"asked": asked.splitlines(), "environment": {k: v for k, v in os.environ.items() if "CUDA" in k}})
        + "\n"
    )
number = len((directory / "asked.log").read_text().splitlines()) - 1
connections = scenario.get("connections") or [{}]
now = connections[min(number, len(connections) - 1)]
servers = now.get("servers", {})


def about_limits(words):
    if words == ["device_query"]:
        return now.get("device_query", 'Unknown command "device_query"\n')
    if words[0] == "get_default_device_pinned_mem_limit" and len(words) == 2:
        return now.get("limits", {}).get(words[1], "")
    if (words[0], len(words)) not in {("get_device_pinned_mem_limit", 3), ("get_active_thread_percentage", 2)}:
        return None
    server = servers.get(words[1])
    if server is None:
        return f"Server {words[1]} not found\n"
    return server.get("limits", {}).get(words[2], "") if len(words) == 3 else server.get("percentage", "100.0") + "\n"


def answer(line):  # noqa: PLR0911 - one reply a return
    words = line.split(" ")
    if by_arguments:
        question = " ".join(words[:2])
        if words[2:] != {"server list": ["--format=csv"], "client list": ["--all", "--format=csv"]}.get(question):
            (directory / "violation").write_text(line)
        return now.get(question, "")
    if words == ["get_server_list"]:
        return now.get("separator", "\n").join(servers) + "\n"
    if words == ["get_default_active_thread_percentage"]:
        return now.get("percentage", "100.0") + "\n"
    if (said := about_limits(words)) is not None:
        return said
    if words[0] in {"get_client_list", "get_server_status"} and len(words) == 2 and words[1].isdigit():
        server = servers.get(words[1])
        if server is None or (server.get("vanishes") and words[0] == server["vanishes"]):
            return f"Server {words[1]} not found\n"
        if words[0] == "get_server_status":
            return server.get("state", "ACTIVE") + "\n"
        return now.get("separator", "\n").join(map(str, server.get("clients", []))) + "\n"
    if words == ["ps"]:
        if "ps_reply" in now:
            return now["ps_reply"]
        if not servers:
            return "Server not found\n"
        head = "PID       ID        SERVER         DEVICE                    NAMESPACE      COMMAND        \n"
        return head + "".join(row + "\n" for row in now.get("ps", []))
    (directory / "violation").write_text(line)
    return f'Unknown command "{line}"\n'


out = "".join(answer(line) for line in asked.splitlines()).encode()
if number < scenario.get("drops", 0):  # the connection was hung up on: recorded on an H200 while two asked at once
    if scenario.get("silently") is not None:
        sys.exit(scenario["silently"])
    os.write(1, b"Cannot send command to MPS control daemon process\n")
    sys.exit(1)
if mode == "frozen":
    time.sleep(60)
elif mode == "frozen_in_the_middle":
    os.write(1, out[: len(out) // 2])
    time.sleep(60)
elif mode == "absent":
    os.write(1, b"Cannot find MPS control daemon process\n")
    sys.exit(1)
elif mode == "dies":
    os.write(1, out[: len(out) // 2])
    os.kill(os.getpid(), 9)
elif mode == "status":
    os.write(2, b"something is wrong\n")
    sys.exit(3)
elif mode == "prose":
    os.write(1, b"Sorry, the control daemon has 12 problems today.\nPlease call 1234.\n")
elif mode == "raw":
    os.write(1, bytes.fromhex(scenario["raw"]))
elif mode == "half":
    os.write(1, out[: scenario["cut"]])
elif mode == "flood":
    for _ in range(160):
        os.write(1, b"1234567\n" * 8192)
elif mode == "honest":
    os.write(1, out)

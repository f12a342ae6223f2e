"""Each recorded state of a real stack, told to the rehearsal and published by a whole daemon: a golden scrape each.

The rehearsal's control program has to answer what was recorded (pids in the place of the recorded ones), and what the
daemon then publishes is held byte for byte to golden/RECORDING.MOMENT.txt. Left out of those are comments (HELP and
TYPE are in tests/metrics/golden, word for word) and what is the process's own; X stands for times, durations, versions,
throughputs of this CPU (and verdicts, which follow from those) and the host's memory. Memory and names of services are
those of the recording where it tells.

Not here: bad-caps is no state of a stack (tests/rehearsal/test_clients.py holds its clients to it), and the XML report
is the form in which the rehearsal's nvidia-smi answers in all of these (tests/rehearsal/test_nvidia_smi.py).

After a change that is meant: MPSWATCH_WRITE_GOLDEN=1 pytest tests/end_to_end/test_recordings.py, and read the changes.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import re
import sys
from pathlib import Path

import pytest

from mpswatch.rehearsal import gpus

_spec = importlib.util.spec_from_file_location("end_to_end_recorded", Path(__file__).parent / "recorded.py")
recorded = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = recorded
_spec.loader.exec_module(recorded)
Scene = recorded.Scene

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="other users and pid namespaces need root")


def test_no_daemon():
    with Scene() as scene:
        nowhere, empty = scene.folder / "nowhere", scene.folder / "empty"
        empty.mkdir()
        for number, pipe in enumerate((nowhere, empty)):
            question, answer = recorded.recorded("no-daemon")[number]
            assert scene.ask(question, pipe=pipe).strip() == answer
        scene.watch(daemons={"nowhere": nowhere, "empty": empty}, rehearsed=False)
        scene.shows("no-daemon")


def test_idle_daemon_a_client_and_a_server_that_is_left_without_clients():
    said = recorded.text_of("replies-without-clients").splitlines()[-2:]
    without_server, without_clients = (ast.literal_eval(line.partition(": ")[2])[0].decode() for line in said)
    look = ("get_server_list", "get_default_active_thread_percentage")
    with Scene() as scene:
        scene.answers_as("idle-daemon")
        assert scene.ask(*look, "ps") == without_server
        scene.watch()
        scene.shows("idle-daemon")
        client = scene.service(1082, program="/usr/bin/python3.12")
        scene.answers_as("many-commands-one-connection", slice(0, 3), server=440)
        scene.shows("many-commands-one-connection")
        scene.stack.remove(client)
        server = scene.stack.server_pid
        answer = scene.ask(*look, f"get_client_list {server}", f"get_server_status {server}", "ps")
        assert answer.replace(str(server), "665") == without_clients
        scene.shows("replies-without-clients")


def test_two_managed_one_foreign_and_a_client_in_a_pid_namespace():
    with Scene() as scene:
        for pid in (578, 577):
            scene.service(pid)
        scene.foreign(581)
        scene.answers_as("two-managed-one-foreign", server=633)
        scene.watch()
        scene.shows("two-managed-one-foreign")
        if os.getuid() == 0:
            scene.service(885, namespaced=True, cap="50", memory_mib=470)
            scene.answers_as("pid-namespaced-client")
            scene.shows("pid-namespaced-client")


@needs_root
def test_server_uid_follows_first_client():
    with Scene() as scene:
        first = scene.service(428, program="/usr/bin/python3.12", uid=1001, memory_mib=516)
        scene.answers_as("server-uid-follows-first-client", slice(0, 2), server=430)
        scene.watch()
        scene.shows("server-uid-follows-first-client.first")
        scene.stack.tell("queue", uid=0, memory_mib=516)
        scene.answers_as("server-uid-follows-first-client", slice(2, 5))
        scene.shows("server-uid-follows-first-client.second-waits")
        scene.stack.remove(first)
        scene.shows("server-uid-follows-first-client.second-served")
        scene.answers_as("server-uid-follows-first-client", slice(5, 6), server=482)


@needs_root
def test_wrong_uid_client_and_the_shutdown_that_it_arms_though_dead():
    with Scene() as scene:
        client = scene.service(1515)
        scene.stack.tell("queue", uid=65534)
        scene.answers_as("wrong-uid-client", slice(0, 3), server=633)
        scene.watch()
        scene.shows("wrong-uid-client")
        scene.stack.tell("drain")
        scene.shows("armed-shutdown-by-dead-client.dead")
        server = scene.stack.server_pid
        scene.stack.remove(client)
        scene.shows("armed-shutdown-by-dead-client.shut-down")
        assert scene.stack.server_pid not in {server, None}


def test_daemon_default_percentage():
    with Scene() as scene:
        scene.service()
        scene.ask("set_default_active_thread_percentage 30")
        scene.answers_as("daemon-default-percentage", slice(1, 2))
        scene.watch(sweep={"enabled": True, "caps": [100, 80]})
        scene.swept()
        scene.shows("daemon-default-percentage")


def test_limits():
    """Three recorded daemons side by side, through all that they were told and asked."""
    with Scene() as scene:
        pipes = replay_limits(scene)
        assert list(pipes) == ["plain", "defaults", "environment"]
        scene.watch(daemons=pipes)
        scene.shows("limits")


def replay_limits(scene):
    """Do line by line what the recording did; returns the pipe directories of its daemons by name."""
    pipes, name = {}, ""
    for line in recorded.text_of("limits").splitlines():
        if started := re.match(r"##### daemon (\w+) started with (\{.*\})", line):
            name, environment = started[1], ast.literal_eval(started[2])
            percentage = float(environment.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", 100))
            pipes[name] = scene.stack.add_daemon(name, default_percentage=percentage)
        elif came := re.match(r"client with (\{.*\}): b'ready pid (\d+) sms (\d+) ", line):
            cap = ast.literal_eval(came[1]).get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
            scene.service(int(came[2]), program="/opt/torch/.venv/bin/python3", daemon=name, cap=cap)
            server = scene.stack.status()["daemons"][name]["server"]
            scene.known.setdefault(server["pid"], int(came[2]) + 2)  # as in the recording, where each took two numbers
            assert server["clients"][-1]["sm_count"] == int(came[3]), line
        elif line.startswith("['") and not re.search("quit|--csv| as 65534 ", line):
            questions, _, answer = line.partition(" -> ")
            said = ast.literal_eval(answer[: answer.index(", b''")] + ",)")[0].decode()
            scene.answers(ast.literal_eval(questions), said, pipe=pipes[name])
    return pipes


def test_full_server():
    text = recorded.text_of("full-server")
    let_in, refused = (int(number) for number in re.findall(r"^ +(\d+) ctx \d+:", text, re.M))
    with Scene() as scene:
        scene.stack.tell("service", name="light", count=let_in + refused, memory_mib=300, busy=False)
        server = scene.stack.server_pid
        assert len(scene.ask(f"get_client_list {server}").split()) == let_in
        assert len(scene.ask("ps").splitlines()) == let_in + 1
        assert len(scene.stack.status()["departed"]) == refused
        scene.watch(sweep={"enabled": True})
        scene.swept(outcome="refused")
        scene.shows("full-server")


def test_hung_and_dead_daemon():
    with Scene() as scene:
        scene.service()
        scene.watch()
        recorded.until(lambda: scene.daemon.value("mpswatch_managed_clients") == 1)
        scene.stack.tell("die", what="server")
        scene.answers_as("hung-and-dead-daemon", slice(0, 1))
        scene.shows("hung-and-dead-daemon.server-killed")
        scene.stack.tell("die")
        scene.answers_as("hung-and-dead-daemon", slice(1, 2))
        scene.shows("hung-and-dead-daemon.daemon-killed")
        scene.stack.tell("start")
        scene.answers_as("hung-and-dead-daemon", slice(2, 3))
        scene.stack.tell("hang")
        scene.shows("hung-and-dead-daemon.frozen")
        scene.stack.tell("resume")
        scene.ask("quit")
        scene.answers_as("hung-and-dead-daemon", slice(5, 6))  # nothing is left, as in no-daemon


CAPS = [100, 75, 50, 25, 10]


def sm_counts(name):
    """What the recorded clients saw, by cap."""
    text = recorded.text_of(name)
    return {cap: int(sms) for cap, sms in re.findall(r'"cap": "(\d+)", "size": 4096.*"sms": (\d+)', text)}


def published_sm_counts(scene):
    found = scene.daemon.metrics()["mpswatch_cap_sm_count"]
    return {dict(labels)["cap"]: value for labels, value in found.items()}


def names_and_labels(text, known):
    """The series of these metrics in a scrape, without what any two GPUs, versions and sources of facts differ in."""
    series = {line.rpartition(" ")[0] for line in text.splitlines() if line.partition("{")[0].split()[0] in known}
    series = {re.sub(r"GPU-[0-9a-f-]+", "GPU", one).replace(gpus.NAME, "NVIDIA H200") for one in series}
    return {re.sub(r'version="[^"]*"', 'version=""', one).replace('"nvidia-smi"', '"nvml"') for one in series}


def test_sweep_alone_and_beside_tenants_where_a_real_daemon_published_the_same_series():
    with Scene() as scene:
        scene.stack.remove(scene.service())
        scene.watch(daemons={"h200": scene.stack.pipe_directory}, sweep={"enabled": True, "caps": CAPS})
        scene.swept()
        assert published_sm_counts(scene) == sm_counts("sweep-alone")
        scene.shows("sweep-alone")
        for pid in (578, 577):
            scene.service(pid, busy=True)
        scene.foreign()
        scene.sweep()
        assert published_sm_counts(scene) == sm_counts("sweep-beside-tenants")
        scene.shows("sweep-beside-tenants")
        scene.sweep()
        real = (recorded.RECORDINGS.with_name("h200-580") / "scrape.txt").read_text()
        known = set(re.findall(r"^# TYPE (mpswatch_\w+)", real, re.M))  # others have come since
        assert len(names_and_labels(real, known)) > 150
        with contextlib.suppress(AssertionError):  # what its history says of a run comes a moment after it
            recorded.until(lambda: names_and_labels(scene.scrape(), known) == names_and_labels(real, known), 10)
        assert names_and_labels(scene.scrape(), known) == names_and_labels(real, known)

"""Which process lists are not believed, from looks that were recorded and from a program that answers in turns."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from mpswatch.documents import PollSnapshot, Reason, from_json
from mpswatch.poll.blindness import sighted

POLLS = Path(__file__).parents[1] / "recordings" / "h200-580" / "two-gpus" / "polls.json"


def polls():
    """The recorded looks at two H200s, by their names."""

    def found(value):
        if isinstance(value, dict) and value.get("kind") == "poll":
            yield from_json(json.dumps(value), PollSnapshot)
        elif isinstance(value, dict | list):
            for inner in value.values() if isinstance(value, dict) else value:
                yield from found(inner)

    return list(found(json.loads(POLLS.read_text())))


def listing(look, *pids):
    """The same GPU with a list of these alone."""
    kept = tuple(process for process in look.processes.value if process.pid in pids)
    return msgspec.structs.replace(look, processes=msgspec.structs.replace(look.processes, value=kept))


def reasons(daemons, gpus):
    return [look.processes.unknown_reason for look in sighted(daemons, gpus)]


def without_contexts(daemon):
    servers = tuple(msgspec.structs.replace(server, contexts=None) for server in daemon.servers.value)
    return msgspec.structs.replace(daemon, servers=msgspec.structs.replace(daemon.servers, value=servers))


BLIND = Reason.PROCESS_LIST_BLIND.value


def test_two_gpus_as_recorded_are_believed_and_each_is_blind_alone():
    """Second recorded look: server 593 on both, clients 733 and 806 on the first GPU, 810 (and 806's other) beside."""
    for poll in polls():
        assert sighted(poll.daemons, poll.gpus.value) == poll.gpus.value
    both = polls()[1]
    first, second = both.gpus.value
    assert reasons(both.daemons, (listing(first), second)) == [BLIND, None]
    assert reasons(both.daemons, (first, listing(second, 803))) == [None, BLIND], "a stranger's row is no sight"
    assert reasons(both.daemons, (listing(first, 806), listing(second, 593))) == [None, None], "one that is missing"


def test_a_gpu_whose_clients_are_all_on_the_other_may_be_empty():
    poll = polls()[0]  # the one client is on the first GPU
    first, second = poll.gpus.value
    assert reasons(poll.daemons, (first, listing(second))) == [None, None]
    assert reasons(poll.daemons, (second,)) == [None]
    assert reasons(poll.daemons, (listing(second),)) == [None], "its clients are on a GPU that is not seen here"


def test_where_no_context_says_on_which_gpu_a_client_is_all_lists_together_are_blind_or_none_is():
    poll = polls()[1]
    daemons = [without_contexts(daemon) for daemon in poll.daemons]
    first, second = poll.gpus.value
    assert reasons(daemons, (listing(first), listing(second))) == [BLIND, BLIND]
    assert reasons(daemons, (listing(first), second)) == [None, None]
    assert reasons(daemons, (listing(first),)) == [BLIND]


@pytest.mark.parametrize("reason", [Reason.IDENTITY_AMBIGUOUS, Reason.SERVER_VANISHED])
def test_a_daemon_that_may_list_the_numbers_of_another_pid_namespace_makes_no_list_blind(reason):
    poll = polls()[0]
    (server,) = poll.daemons[0].servers.value
    other = msgspec.structs.replace(server, start_ticks=None, unknown={"start_ticks": reason})
    servers = msgspec.structs.replace(poll.daemons[0].servers, value=(other,))
    daemon = msgspec.structs.replace(poll.daemons[0], servers=servers)
    assert reasons([daemon], [listing(look) for look in poll.gpus.value]) == [None, None]

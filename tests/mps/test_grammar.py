from __future__ import annotations

import ast
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpswatch.documents import Reason
from mpswatch.mps import ReplyError
from mpswatch.mps.devices import Device
from mpswatch.mps.grammar import Limits, Reply, ServerReply, parse
from mpswatch.mps.lines import OtherProtocol

HEAD = b"PID       ID        SERVER         DEVICE                    NAMESPACE      COMMAND        \n"
ROW = b"1082      104       440            GPU-bf57ff1d-ab96-1f32    4026531836     /usr/bin/python3.12\n"
WHOLE = b"440\n100.0\n1082\nACTIVE\n" + HEAD + ROW


def recorded(recordings, name, command):
    """What a command printed in a recording, as bytes."""
    text = (recordings / name).read_text()
    found = re.search(
        rf"^\$ echo '{re.escape(command)}' [^\n]*\n(.*?)(?=^\$ |^#|^server=|\Z)", text, re.MULTILINE | re.DOTALL
    )
    return found.group(1).encode()


def test_the_recorded_connection_reads_as_what_it_says(recordings):
    text = (recordings / "many-commands-one-connection.txt").read_text()
    lines = [line.removesuffix("$") for line in text.splitlines()[2:8]]
    servers, clients, state, percentage, *table = [line.encode() + b"\n" for line in lines]
    # the recording asked in another order; the replies are the same
    reply = parse(servers + percentage + clients + state + b"".join(table), servers=[440], with_contexts=True)
    assert reply.servers == (440,)
    assert reply.defaults.active_thread_percentage == 100.0
    assert reply.about[440].clients == (1082,)
    assert reply.about[440].state == "ACTIVE"
    (context,) = reply.contexts
    assert (context.pid, context.context_id, context.server_pid) == (1082, 104, 440)
    assert (context.device, context.pid_namespace) == ("GPU-bf57ff1d-ab96-1f32", 4026531836)
    assert context.command == "/usr/bin/python3.12"


def test_two_managed_services_as_recorded(recordings):
    name = "two-managed-one-foreign.txt"
    asked = ["get_server_list", "get_client_list 633", "get_server_status 633", "ps"]
    servers, clients, state, table = (recorded(recordings, name, command) for command in asked)
    reply = parse(servers + b"100.0\n" + clients + state + table, servers=[633], with_contexts=True)
    assert reply.about[633].clients == (577, 578)
    assert [context.pid for context in reply.contexts] == [578, 577]


def test_an_idle_daemon_has_no_server_and_no_clients(recordings):
    name = "idle-daemon.txt"
    asked = ["get_server_list", "get_default_active_thread_percentage", "ps"]
    replies = [recorded(recordings, name, command) for command in asked]
    replies[2] = replies[2].splitlines(keepends=True)[0]
    reply = parse(b"".join(replies), servers=[], with_contexts=True)
    assert (reply.servers, reply.contexts, reply.contexts_reason) == ((), (), None)
    assert recorded(recordings, "sweep-alone.txt", "get_client_list 633").splitlines()[0] == b""
    reply = parse(b"633\n100.0\n\nACTIVE\n" + HEAD, servers=[633], with_contexts=True)
    assert reply.about[633].clients == ()
    assert reply.contexts == ()


def test_lists_may_be_space_separated():
    reply = parse(
        b"440 441\n30.0\n7 5\t6\n\nACTIVE\n\nACTIVE\nServer not found\n", servers=[440, 441], with_contexts=True
    )
    assert reply.servers == (440, 441)
    assert reply.about[440].clients == (5, 6, 7)
    assert reply.about[441].clients == ()


def test_a_server_that_is_not_found_is_known_to_be_not_found():
    reply = parse(
        b"440\n100.0\nServer 439 not found\nServer 439 not found\n1\nServer 440 not found\n",
        servers=[439, 440],
        with_contexts=False,
    )
    assert (reply.about[439].clients, reply.about[439].state) == (None, None)
    assert (reply.about[440].clients, reply.about[440].state) == ((1,), None)


def test_not_found_about_another_server_is_nonsense():
    with pytest.raises(ReplyError):
        parse(b"440\n100.0\nServer 439 not found\nACTIVE\n", servers=[440], with_contexts=False)


@pytest.mark.parametrize("cut", range(len(WHOLE)))
def test_an_answer_cut_at_any_byte_is_an_error_or_lacks_only_rows_of_the_table(cut):
    try:
        reply = parse(WHOLE[:cut], servers=[440], with_contexts=True)
    except ReplyError as error:
        assert error.reason is Reason.DAEMON_NONSENSE  # noqa: PT017 - both outcomes are right, for different cuts
    else:
        assert WHOLE[:cut] == WHOLE[: -len(ROW)]
        assert reply.contexts == ()


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\n", b"\n\n\n", b"440\n", b"440\n100\n", b"440\n100.0.0\n", b"440\n101.0\n", b"440\n-1.0\n",
        b"440\nnan\n", b"440\n1e2\n", b"-440\n100.0\n", b"0440\n100.0\n", b"4.40\n100.0\n", b"99999999999\n100.0\n",
        b"9999999\n100.0\n", b"Hello 12 world\n100.0\n", "４４０\n100.0\n".encode(), b"440\n100.0\n17\n",
        b"440\n100.0\n" * 2, b"\xff\xfe\n100.0\n", b"440\x00\n100.0\n", b"Server 0 not found\n100.0\n",
    ],
)  # fmt: skip
def test_anything_else_is_an_error_with_a_reason(data):
    with pytest.raises(ReplyError) as caught:
        parse(data, servers=[], with_contexts=False)
    assert caught.value.reason is Reason.DAEMON_NONSENSE
    assert len(caught.value.detail) < 400


@pytest.mark.parametrize("state", [b"active", b"Active now", b"12", b"A", b"", b"A" * 40, b"FAULT!", b"ACTIVE ACTIVE"])
def test_a_state_is_one_word_in_capitals(state):
    with pytest.raises(ReplyError):
        parse(b"440\n100.0\n1\n" + state + b"\n", servers=[440], with_contexts=False)


def test_a_state_of_protocol_3_is_recognised():
    with pytest.raises(OtherProtocol) as caught:
        parse(b"440\n100.0\n1\nReady\n", servers=[440], with_contexts=False)
    assert caught.value.reason is Reason.PROTOCOL_UNSUPPORTED


def test_a_daemon_that_does_not_know_the_first_command_speaks_another_protocol():
    with pytest.raises(OtherProtocol):
        parse(b'Unknown command "get_server_list"\n', servers=[], with_contexts=True)


def test_an_older_daemon_may_lack_the_percentage_and_the_table():
    data = b'440\nUnknown command "get_default_active_thread_percentage"\n1\nACTIVE\nUnknown command "ps"\n'
    reply = parse(data, servers=[440], with_contexts=True)
    assert reply.defaults.active_thread_percentage is None
    assert (reply.contexts, reply.contexts_reason) == (None, Reason.NOT_SUPPORTED)
    assert reply.about[440].clients == (1,)


def test_a_privilege_refused_is_a_permission():
    with pytest.raises(ReplyError) as caught:
        parse(b"Not enough privilege to execute get_server_list command\n", servers=[], with_contexts=False)
    assert caught.value.reason is Reason.PERMISSION


@pytest.mark.parametrize(
    "rows",
    [
        ROW + b"evil\n999       1         440            not-a-device\n",
        b"1082      104       440            GPU-bf57ff1d-ab96-1f32    4026531836     /x\ny\n" + ROW,
        b"9999999   104       440            GPU-bf57ff1d-ab96-1f32    4026531836     /x\n",
        b"hello\n",
    ],
)
def test_a_table_that_cannot_be_read_is_unknown_and_the_lists_stay(rows):
    reply = parse(b"440\n100.0\n1082\nACTIVE\n" + HEAD + rows, servers=[440], with_contexts=True)
    assert (reply.contexts, reply.contexts_reason) == (None, Reason.DAEMON_NONSENSE)
    assert reply.about[440].clients == (1082,)


def test_a_command_in_the_table_is_shown_printable():
    row = (
        b"1082      104       440            GPU-bf57ff1d-ab96-1f32    4026531836     /home/jane/\xff\x1b[2J "
        + b"x" * 300
        + b"\n"
    )
    reply = parse(b"440\n100.0\n1082\nACTIVE\n" + HEAD + row, servers=[440], with_contexts=True)
    (context,) = reply.contexts
    assert context.command.startswith(r"~/\xff\x1b[2J x")
    assert len(context.command) == 200


def numbers_of(reply: Reply):
    yield from reply.servers
    if reply.defaults.active_thread_percentage is not None:
        yield reply.defaults.active_thread_percentage
    for about in reply.about.values():
        yield from about.clients or ()
    for context in reply.contexts or ():
        yield from (context.pid, context.context_id, context.server_pid, context.pid_namespace)


def check(data, servers, with_contexts):
    try:
        reply = parse(data, servers=servers, with_contexts=with_contexts)
    except ReplyError as error:
        assert isinstance(error.reason, Reason)  # noqa: PT017 - an error is one of the two right outcomes
        return
    said = {float(number) for number in re.findall(rb"[0-9]+(?:\.[0-9]+)?", data)}
    assert {float(number) for number in numbers_of(reply)} <= said


@given(st.binary(max_size=400), st.lists(st.integers(1, 9), max_size=2, unique=True), st.booleans())
def test_any_bytes_are_a_reply_or_a_named_error(data, servers, with_contexts):
    check(data, servers, with_contexts)


lines = st.sampled_from(
    [
        b"", b"1", b"2", b"1 2", b"12\t3", b"100.0", b"50.5", b"ACTIVE", b"FAULT", b"Ready", b"Server 1 not found",
        b"Server not found", HEAD.strip(), ROW.strip(), b'Unknown command "ps"', b"x", b"-1", b"1.5.2", b"440",
    ]
)  # fmt: skip


@given(st.lists(lines, max_size=14), st.lists(st.integers(1, 3), max_size=2, unique=True), st.booleans(), st.booleans())
def test_any_lines_of_the_protocol_in_any_order_are_a_reply_or_a_named_error(said, servers, with_contexts, whole):
    data = b"\n".join(said) + (b"\n" if whole else b"")
    check(data, servers, with_contexts)


@given(st.data())
def test_a_whole_answer_with_some_bytes_changed_never_yields_a_number_that_was_not_said(data):
    broken = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    check(bytes(broken), [440], with_contexts=True)


@pytest.mark.parametrize("empty", [b"", b"\n"])
def test_an_empty_list_is_an_empty_line_or_nothing_at_all(empty):
    """Seen on an H200: with no server `get_server_list` prints nothing at all before the other replies."""
    reply = parse(empty + b"100.0\nServer not found\n", servers=(), with_contexts=True)
    assert (reply.servers, reply.defaults.active_thread_percentage, reply.contexts) == ((), 100.0, ())

    reply = parse(b"440\n100.0\n" + empty + b"ACTIVE\n", servers=(440,), with_contexts=False)
    assert reply.about[440] == ServerReply(clients=(), state="ACTIVE")


def test_what_a_daemon_without_clients_really_answered_is_read(recordings):
    """tests/recordings: the table of contexts is missing altogether where there is nobody to list."""
    said = (recordings / "replies-without-clients.txt").read_text()
    assert r"no server: (b'100.0\nServer not found\n'" in said
    assert r"a server without clients: (b'665\n100.0\nACTIVE\n'" in said

    nobody = parse(b"100.0\nServer not found\n", servers=(), with_contexts=True)
    assert (nobody.servers, nobody.contexts) == ((), ())
    idle = parse(b"665\n100.0\nACTIVE\n", servers=(665,), with_contexts=True)
    assert (idle.servers, idle.about[665], idle.contexts) == ((665,), ServerReply(clients=(), state="ACTIVE"), ())


# --- limits, as an H200 answered them (tests/recordings: limits.txt) ---

GPU = Device("GPU-92c9ca90-3e5d-6c46-f77e-a3d8af084002", 0)


def said_to(recordings, *commands):
    """What the recorded daemon printed to just these commands on one connection, each time that it was asked them."""
    text = (recordings / "limits.txt").read_text()
    found = re.findall(r"^(\[.*?\])(?: as \d+)? -> (\(.*?\)) \d", text, re.MULTILINE)
    answers = [ast.literal_eval(answer)[0] for asked, answer in found if ast.literal_eval(asked) == list(commands)]
    assert answers, f"{commands} were never asked"
    return answers


def test_a_default_limit_that_is_not_set_is_no_line_at_all(recordings):
    unset, limit = said_to(recordings, "get_default_device_pinned_mem_limit 0")
    assert (unset, limit) == (b"", b"3G\n")
    percentage, _ = said_to(recordings, "get_default_active_thread_percentage")[:2]
    for answer, expected in ((unset, None), (limit, 3 << 30)):
        data = percentage + unset + percentage + answer + percentage + b"Server not found\n"
        reply = parse(data, servers=(), with_contexts=True, devices=[GPU])
        assert reply.defaults == Limits(100.0, {GPU.uuid: None, "0": expected})


def test_the_limits_of_a_server_as_recorded(recordings):
    percentages = said_to(recordings, "get_active_thread_percentage 579")
    limits = said_to(recordings, f"get_device_pinned_mem_limit 579 {GPU.uuid}")
    assert percentages == [b"100.0\n", b"40.0\n"]
    assert limits == [b"", b"2G\n"], "2500M was set for the ordinal: it is rounded down, and known by the uuid too"
    for limit, percentage, expected in zip(limits, percentages, (None, 2 << 30), strict=True):
        data = b"579\n50.0\n50.0\n50.0\n577\n" + percentage + limit + percentage + b"ACTIVE\n"
        reply = parse(data, servers=[579], with_contexts=False, devices=[GPU])
        assert reply.about[579].clients == (577,)
        assert reply.about[579].limits == Limits(float(percentage), {GPU.uuid: expected})


def test_limits_are_told_apart_with_and_without_clients_and_with_several_devices():
    two = [GPU, Device("GPU-1", 1)]
    data = b"579\n30.0\n3G\n30.0\n900M\n30.0\n30.0\n30.0\n" + b"30.0\n30.0\n2G\n30.0\nACTIVE\n"
    reply = parse(data, servers=[579], with_contexts=True, devices=two)
    assert reply.defaults == Limits(30.0, {GPU.uuid: 3 << 30, "GPU-1": 900 << 20, "0": None, "1": None})
    assert reply.about[579] == ServerReply((), "ACTIVE", Limits(30.0, {GPU.uuid: None, "GPU-1": 2 << 30}))


def test_without_a_device_the_percentage_alone_is_asked():
    reply = parse(b"579\n50.0\n577\n40.0\nACTIVE\n", servers=[579], with_contexts=False, devices=[])
    assert reply.about[579].limits == Limits(40.0, {})


@pytest.mark.parametrize("known", range(6))
def test_a_server_that_vanishes_between_two_questions_is_not_found_from_there_on(known):
    """Before each of its five questions; a limit that is not set would have been answered by nothing."""
    answers = [b"577\n", b"40.0\n", b"", b"40.0\n", b"ACTIVE\n"][:known] + [b"Server 579 not found\n"] * (5 - known)
    data = b"579\n50.0\n50.0\n50.0\n" + b"".join(answers)
    about = parse(data, servers=[579], with_contexts=False, devices=[GPU]).about[579]
    assert about.clients == ((577,) if known > 0 else None)
    assert about.limits.memory == ({GPU.uuid: None} if known > 2 else None)
    assert about.limits.active_thread_percentage == (40.0 if known > 3 else None)
    assert about.state == ("ACTIVE" if known > 4 else None)


@pytest.mark.parametrize("answer", [b"8192", b"0", b"unlimited", b"3221225472 bytes", b"Device 0\nnone", b"3T", b"-1G"])
def test_a_limit_in_other_words_is_unknown_and_the_lists_stay(answer):
    """What other drivers print is not known: it must not be taken for a pid, nor make the daemon's answer nonsense."""
    data = b"579\n50.0\n" + answer + b"\n50.0\n" + answer + b"\n50.0\n577\n40.0\n" + answer + b"\n40.0\nACTIVE\n"
    reply = parse(data, servers=[579], with_contexts=False, devices=[GPU])
    assert (reply.servers, reply.about[579].clients) == ((579,), (577,))
    assert reply.defaults == Limits(50.0, None)
    assert reply.about[579].limits == Limits(40.0, None)


def test_an_older_daemon_may_know_no_limits():
    limit, percentage = b"get_device_pinned_mem_limit 579 GPU-1", b"get_active_thread_percentage 579"
    unknown = [b'Unknown command "%s"\n' % command for command in (percentage, limit, percentage)]
    default = b'Unknown command "get_default_device_pinned_mem_limit %s"\n100.0\n'
    data = b"579\n100.0\n" + default % b"GPU-1" + default % b"0" + b"577\n" + b"".join(unknown) + b"ACTIVE\n"
    reply = parse(data, servers=[579], with_contexts=False, devices=[Device("GPU-1")])
    assert reply.defaults == Limits(100.0, None)
    assert reply.about[579].limits == Limits(None, None)


@pytest.mark.parametrize(
    "data",
    [
        b"579\n50.0\n577\n40.0\nACTIVE\n", b"579\n50.0\n50.0\n50.0\n577\n40.0\nACTIVE\n",
        b"579\n50.0\n50.0\n50.0\n577\n40.0\n2G\nACTIVE\n", b"579\n50.0\n50.0\n50.0\n577\n2G\n40.0\n40.0\nACTIVE\n",
        b"579\n3G\n50.0\n50.0\n50.0\n577\n40.0\n40.0\nACTIVE\n",
        b"579\n50.0\n50.0\n50.0\n577\n400.0\n400.0\nACTIVE\n",
    ],
)  # fmt: skip
def test_percentages_elsewhere_are_an_error(data):
    with pytest.raises(ReplyError):
        parse(data, servers=[579], with_contexts=False, devices=[GPU])


@given(
    st.lists(st.sampled_from([b"579", b"3G", b"2500M", b"40.0", b"50.0", b"577", b"ACTIVE", b"Server 579 not found"]))
)
def test_any_lines_about_limits_are_a_reply_of_what_was_said_or_a_named_error(said):
    try:
        reply = parse(b"".join(line + b"\n" for line in said), servers=[579], with_contexts=False, devices=[GPU])
    except ReplyError:
        return
    amounts = {*(reply.defaults.memory or {}).values(), *(reply.about[579].limits.memory or {}).values()} - {None}
    assert amounts <= {amount for word, amount in ((b"3G", 3 << 30), (b"2500M", 2500 << 20)) if word in said}


def test_a_missing_table_where_a_client_is_listed_is_an_answer_cut_short():
    with pytest.raises(ReplyError, match="ends before that to ps"):
        parse(b"665\n100.0\n707\nACTIVE\n", servers=(665,), with_contexts=True)

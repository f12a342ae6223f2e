"""Log lines: one line each, nothing that a terminal obeys, and never a wait for whoever reads them."""

import json
import os
import subprocess
import sys
import time

EVIL = "a\nb\x1b[2J\u202e\xa0\x07"


def lines_of(form, level="info"):
    script = (
        "from mpswatch import logs\n"
        f"logs.set_up({level!r}, {form!r})\n"
        f"log = logs.get_logger(); log.info({EVIL!r}, name={EVIL!r}, number=3); log.debug('no')\n"
        "import logging; logging.getLogger('apscheduler').warning('of a library')\n"
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    log.exception('it went wrong')\n"
        "logs.flush()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=True)
    return done.stderr.decode().splitlines()


def test_json_is_one_object_a_line_whatever_a_name_holds():
    first, second, third = map(json.loads, lines_of("json"))
    assert first["event"] == first["name"] == EVIL
    assert first["level"] == "info"
    assert first["number"] == 3
    assert (second["event"], second["library"]) == ("of a library", "apscheduler")
    assert "ZeroDivisionError" in third["exception"]


def test_text_is_printable_whatever_a_name_holds():
    first, second, third, *trace = lines_of("text")
    assert r"a\x0ab\x1b[2J\u202e\xa0\x07" in first
    assert all(character.isprintable() for line in (first, second, third, *trace) for character in line)
    assert "ZeroDivisionError: division by zero" in trace[-1]


def test_a_reader_that_does_not_read_holds_nobody_up():
    script = (
        "import sys, time\nfrom mpswatch import logs\n"
        "logs.set_up('info', 'json'); log = logs.get_logger()\n"
        "began = time.monotonic()\n"
        "for number in range(5000): log.info('x' * 1000)\n"
        "print(time.monotonic() - began < 5); sys.stdout.flush()\n"
        "time.sleep(1.0)\n"
        "logs.flush(5)\n"
        "for number in range(3): log.info('and then')\n"
        "logs.flush(5)\n"
        "import os; os._exit(0)\n"
    )
    reading, writing = os.pipe()
    program = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=writing)
    os.close(writing)
    try:
        assert program.stdout.readline() == b"True\n"  # nobody has read a byte of stderr so far
        time.sleep(0.2)
        said = b""
        while piece := os.read(reading, 65536):
            said += piece
    finally:
        os.close(reading)
        program.stdout.close()
        assert program.wait(30) == 0
    assert b"log lines were dropped" in said
    assert b"and then" in said

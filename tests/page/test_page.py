"""The status page and the pages of runs, in a real Chromium."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

pytestmark = pytest.mark.part("chromium")

WINDOWS = [(1360, 900, False), (1360, 900, True), (390, 844, False), (390, 844, True)]
PAGES = ("/", "/runs/run-1", "/runs/run-2", "/interference/pairs-1")


def text(browser, selector="body"):
    return browser.run(f"document.querySelector({selector!r}).innerText")


def test_everything_a_person_wants_is_there(browser, url, shown):
    browser.open(url)
    said = text(browser)
    assert "ACTIVE, server 100" in said  # MPS
    assert "Xorg" in said  # foreign, with memory
    assert "program-202" in said  # managed
    assert "700" in said
    assert "below its history" in said
    assert "explained (foreign: train.py)" in said
    assert "unknown: deadline" in said
    assert "history_short, 3 earlier runs" in said
    assert "uid_mismatch: server of uid 1000" in said
    assert browser.run("document.querySelectorAll('svg[role=img] polyline.past').length") == 3 * 30
    assert browser.run("document.querySelectorAll('svg[role=img] polygon.band').length") == 3
    assert "SIMULATED" not in said


def test_a_poll_that_saw_nothing_shows_its_reasons_and_no_zero(browser, url, latest, facts):
    latest.expect([(facts.DAEMON, facts.GPU, "quick")])
    latest.record(facts.blind_poll())
    browser.open(url)
    said = text(browser)
    assert "daemon_silent" in said
    assert "unknown: nvml_missing" in said
    assert "never_seen" in said
    assert "0 processes" not in said


def test_limits_are_shown_where_they_are_set_and_only_there(browser, url, latest, facts):
    free = facts.server(memory_limits={facts.GPU: None})
    nothing = facts.daemon(servers=facts.known((free,)), default_memory_limits={facts.GPU: None})
    latest.record(facts.poll(daemons=(nothing,)))
    browser.open(url)
    assert "at most" not in text(browser, ".tiles")
    limited = facts.server(active_thread_percentage=40.0, memory_limits={facts.GPU: 2 << 30})
    set_now = replace(nothing, servers=facts.known((limited,)), default_active_thread_percentage=50.0)
    latest.record(facts.poll(daemons=(set_now,)))
    browser.open(url)
    said = text(browser, ".tiles")
    assert "each client of server 100\nat most 40 %, 2 GiB of GPU-4a1bc0de\ntest, asked 2026-11-30 12:00:00 UTC" in said
    assert "each client of servers to come\nat most 50 %\n" in said


@pytest.mark.parametrize("state", ["ACTIVE", "Ready"])
def test_a_server_at_work_is_no_oddity_in_either_protocol(browser, url, latest, facts, state):
    latest.record(facts.poll(daemons=(facts.daemon(servers=facts.known((facts.server(server_state=state),))),)))
    browser.open(url)
    assert f"{state}, server 100" in text(browser, ".tiles .good")


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_it_is_dark_or_light_as_the_reader_likes_it(browser, url, shown, window):
    width, height, dark = window
    browser.show(width, height, dark=dark)
    browser.open(url)
    paper = browser.run("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, paper.removeprefix("rgb(").removesuffix(")").split(",")))
    assert (brightness < 200) == dark


CLIPPED = Path(__file__).with_name("clipped.js").read_text()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1200, 1600])
def test_nothing_is_clipped_and_nothing_overlaps(browser, url, shown, width, dark):
    browser.show(width, 900, dark=dark)
    for path in PAGES:
        browser.open(url + path)
        assert json.loads(browser.run(CLIPPED)) == [], path


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        ("overflow = 'hidden'; style.width = '1rem'; style.whiteSpace = 'nowrap'", "clipped"),
        ("marginLeft = '-3rem'", "text leaves"),
        ("width = '9999px'", "clipped"),
    ],
)
def test_the_check_for_what_is_clipped_finds_it(browser, url, shown, harm, says):
    browser.show(1200, 900)
    browser.open(url)
    script = "(() => { const style = document.querySelector('.many td:nth-child(3) > div').style; style.%s; })()"
    browser.run(script % harm)
    assert says in {one.split(":")[0] for one in json.loads(browser.run(CLIPPED))}


@pytest.mark.part("axe.min.js")
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_axe_finds_nothing(browser, url, shown, violations, window):
    width, height, dark = window
    browser.show(width, height, dark=dark)
    for path in (*PAGES, "/runs/nobody"):
        browser.open(url + path)
        browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert violations() == []


def test_the_page_asks_nobody_else_for_anything_and_complains_of_nothing(browser, url, shown):
    browser.requests.clear()
    browser.complaints.clear()
    browser.open(url)
    browser.open(f"{url}/runs/run-1")
    assert set(browser.requests) == {f"{url}/", f"{url}/static/live.js", f"{url}/runs/run-1"}
    assert browser.complaints == []


def rows(browser, caption):
    """The rows of the table of that caption, as lists of their cells' texts."""
    script = """[...document.querySelectorAll('table')].filter(t => t.caption.innerText.startsWith(%s)).map(t =>
        [...t.tBodies[0].rows].map(r => [...r.cells].map(c => c.innerText.replace(/\\s+/g, ' ').trim())))"""
    return browser.run(script % json.dumps(caption))


def test_burst_and_sustained_each_have_their_own_curve_clock_power_and_history(browser, url, shown):
    browser.show(1600, 900)
    browser.open(url)
    quick, thorough = rows(browser, "Each cap of run")
    assert {row[0].split()[-1] for row in quick} == {"burst"}
    assert [row[0] for row in thorough[:2]] == ["100 % burst", "100 % sustained"]
    assert [row[1:3] for row in thorough[:2]] == [
        ["742.0 (740.5 to 743.5)", "1980 MHz, 390 W"],
        ["647.0 (645.7 to 648.3)", "1485 MHz, 690 W"],
    ]
    fifty = {row[0]: row[5] for row in thorough if row[0].startswith("50 %")}
    assert fifty["50 % burst"] == "below its history, usually 497.0 – 549.4"
    assert fifty["50 % sustained"] == "below its history, usually 489.1 – 540.5"
    named = browser.run("[...document.querySelectorAll('figcaption')].map(f => f.innerText.split(' ')[0])")
    assert named == ["burst", "burst", "sustained"]


def test_what_neighbours_cost_is_a_matrix_with_its_own_time(browser, url, shown):
    browser.show(1600, 900)
    for path in ("/", "/interference/pairs-1"):
        browser.open(url + path)
        (matmul,) = rows(browser, "matmul beside matmul")
        assert matmul[0] == [
            "25 %", "226.0 TFLOPS", "0.2% -0.3% to 0.7%", "2.9% 2.4% to 3.4%", "29.0% 28.5% to 29.5%",
            "50.5% 50.0% to 51.0%",
        ]  # fmt: skip
        assert matmul[2][-1] == "unknown: deadline"
        (kinds,) = rows(browser, "kinds of work")
        assert [row[0] for row in kinds] == ["matmul", "stream", "launch"]
        assert kinds[1][3] == "48.0% 47.5% to 48.5%"
        assert "2026-11-30 12:00:00 UTC" in text(browser)
    (every,) = rows(browser, "Each victim alone, then each pair")
    assert len(every) == 6 + 24
    assert every[0][:4] == ["matmul 25 %", "the stack as it is", "", "226.0 TFLOPS"]
    assert "/home/someone" not in text(browser)


def test_a_matrix_that_is_stale_is_gone_but_not_its_time_and_page(browser, url, latest, facts):
    old = facts.interference(facts.NOON - timedelta(days=2))
    latest.restore([old], now=facts.NOON)
    browser.open(url)
    assert "unknown: stale. The newest is measurement pairs-1, finished 2026-11-28 12:00:00 UTC" in text(browser)
    assert rows(browser, "matmul beside matmul") == []
    assert ["what neighbours cost", "mps, GPU-4a1bc0de, interference", "stale"] in rows(browser, "")[-2]


def test_it_follows_what_happens_without_being_loaded_again(browser, url, latest, facts, shown):
    browser.show(1360, 900)
    browser.open(url)
    browser.run("window.still = true; document.querySelector('a[href=\"/runs/run-1\"]').focus(); 0")
    latest.record(facts.sweep(facts.NOON + timedelta(hours=2), run_id="run-3"))
    browser.wait_for("document.body.innerText.includes('run-3')", 40)
    assert browser.run("window.still") is True
    assert browser.run("document.activeElement.getAttribute('href')") == "/runs/run-1"  # the focus has not jumped


def test_a_lost_connection_is_said_and_what_was_known_stays(browser, url, shown):
    browser.open(url)
    browser.offline(offline=True)
    try:
        browser.wait_for("document.getElementById('live').textContent.includes('Connection lost')", 40)
        assert "Xorg" in text(browser)
    finally:
        browser.offline(offline=False)
    browser.wait_for("document.getElementById('live').textContent.includes('Connected again')", 40)


def test_updates_can_be_paused(browser, url, shown):
    browser.open(url)
    browser.run("document.getElementById('pause').click(); 0")
    assert text(browser, "#pause") == "Resume updates"
    assert browser.run("document.getElementById('pause').getAttribute('aria-pressed')") == "true"


def test_without_scripts_everything_is_there_too(browser, url, shown):
    browser.scripts(allowed=False)
    try:
        browser.open(url)
        assert "below its history" in text(browser)
        assert len(rows(browser, "matmul beside matmul")[0]) == 4
        assert browser.run("document.querySelector('meta[http-equiv=refresh]') !== null") is True
        assert browser.run("document.getElementById('pause').hidden") is True
    finally:
        browser.scripts(allowed=True)


def test_the_keyboard_goes_to_the_content_first(browser, url, shown):
    browser.show(1360, 900)
    browser.open(url)
    browser.press("Tab")
    assert text(browser, ":focus") == "Skip to content"
    assert browser.run("document.activeElement.getBoundingClientRect().left >= 0") is True
    reached = set()
    for _ in range(40):
        browser.press("Tab")
        reached.add(browser.run("document.activeElement.getAttribute('href') || document.activeElement.id"))
    assert {"/runs/run-1", "/metrics", "pause"} <= reached


def test_a_run_has_its_document_its_cells_and_its_log(browser, url, shown):
    browser.open(f"{url}/runs/run-1")
    said = text(browser)
    assert "sweep run-1 starts under server 100" in said
    assert "deadline" in said
    browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert '"run_id": "run-1"' in text(browser)
    assert "/home/someone" not in text(browser)  # command lines: only behind a password


def test_a_run_that_is_not_there_is_said_not_to_be(browser, url, shown):
    browser.open(f"{url}/runs/nobody")
    assert "No run nobody is in the archive" in text(browser)
    browser.open(f"{url}/interference/nobody")
    assert "No interference nobody is in the archive" in text(browser)


class TestTwoGpus:
    """Two GPUs are two of everything, and nothing is added up across them."""

    OTHER = "GPU-99999999-0000-1111-2222-333333333333"

    @pytest.fixture
    def latest(self, latest, facts):
        latest.record(facts.poll())
        for number, uuid in enumerate((facts.GPU, self.OTHER)):
            gpu = facts.gpu(uuid, index=number)
            cells = tuple(facts.cell(cap, tflops=tflops / (1 + number)) for cap, (_, tflops) in facts.CURVE.items())
            latest.record(facts.sweep(run_id=f"run-{number}", gpu=gpu, cells=cells))
            latest.record(facts.interference(run_id=f"pairs-{number}", gpu=gpu))
        return latest

    def test_each_has_its_own_caps_curve_and_matrix(self, browser, url):
        browser.show(1600, 900)
        browser.open(url)
        assert [table[0][:2] for table in rows(browser, "Each cap of run")] == [
            ["100 % burst", "742.0"],
            ["100 % burst", "371.0"],
        ]
        assert len(rows(browser, "matmul beside matmul")) == 2
        headings = browser.run("[...document.querySelectorAll('h2')].map(h => h.innerText)")
        for uuid in ("GPU-99999999", "GPU-4a1bc0de"):
            assert f"Throughput by cap: mps, {uuid}, plan quick" in headings
            assert f"Interference: mps, {uuid}" in headings

    @pytest.mark.part("axe.min.js")
    def test_axe_tells_them_apart_too(self, browser, url, violations):
        browser.open(url)
        assert violations() == []


class TestSimulated:
    """What comes from a rehearsal cannot be taken for a measurement."""

    @pytest.fixture
    def latest(self, facts):
        from mpswatch.latest import Latest, Settings

        settings = Settings(daemons={facts.DAEMON: facts.PIPE}, poll_interval=15.0, sweep_interval=3600.0)
        made = Latest(settings, host=facts.HOST, simulated=True)
        made.record(facts.poll(simulated=True))
        made.record(facts.sweep(simulated=True))
        made.record(facts.interference(simulated=True))
        return made

    @pytest.mark.parametrize("window", WINDOWS, ids=str)
    def test_it_is_marked_in_the_title_at_the_top_and_wherever_one_scrolls(self, browser, url, window):
        width, height, dark = window
        browser.show(width, height, dark=dark)
        browser.open(url)
        assert browser.run("document.title").startswith("[SIMULATED]")
        assert "SIMULATED" in text(browser, "aside")
        browser.run("scrollTo(0, document.body.scrollHeight); 0")
        assert browser.run("Math.round(document.querySelector('aside').getBoundingClientRect().top)") == 0
        assert "simulated numbers" in text(browser)
        assert "complete, SIMULATED" in text(browser)

"""The status page and the pages of runs, in a real Chromium."""

from __future__ import annotations

from datetime import timedelta

import pytest

pytestmark = pytest.mark.part("chromium")

WINDOWS = [(1360, 900, False), (1360, 900, True), (390, 844, False), (390, 844, True)]


def text(browser, selector="body"):
    return browser.run(f"document.querySelector({selector!r}).innerText")


def test_everything_a_person_wants_is_there(browser, url, shown):
    browser.open(url)
    said = text(browser)
    assert "ACTIVE, server 100" in said  # MPS
    assert "Xorg" in said  # foreign, with memory
    assert "program-201" in said  # managed
    assert "700" in said
    assert "below its history" in said
    assert "explained (foreign: train.py)" in said
    assert "unknown: deadline" in said
    assert "history_short, 3 earlier runs" in said
    assert "uid_mismatch: server of uid 1000" in said
    assert browser.run("document.querySelectorAll('svg[role=img] polyline.past').length") == 30
    assert browser.run("document.querySelectorAll('svg[role=img] polygon.band').length") == 1
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


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_nothing_is_wider_than_the_window(browser, url, shown, window):
    width, height, dark = window
    browser.show(width, height, dark=dark)
    for path in ("/", "/runs/run-1"):
        browser.open(url + path)
        assert browser.run("document.documentElement.scrollWidth") <= width
        paper = browser.run("getComputedStyle(document.body).backgroundColor")
        brightness = sum(map(int, paper.removeprefix("rgb(").removesuffix(")").split(",")))
        assert (brightness < 200) == dark


@pytest.mark.part("axe.min.js")
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_axe_finds_nothing(browser, url, shown, violations, window):
    width, height, dark = window
    browser.show(width, height, dark=dark)
    for path in ("/", "/runs/run-1", "/runs/nobody"):
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


def test_it_follows_what_happens_without_being_loaded_again(browser, url, latest, facts, shown):
    browser.show(1360, 900)
    browser.open(url)
    browser.run("window.still = true; document.querySelector('a[href=\"/runs/run-1\"]').focus(); 0")
    latest.record(facts.sweep(facts.NOON + timedelta(hours=2), run_id="run-2"))
    browser.wait_for("document.body.innerText.includes('run-2')", 40)
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


class TestSimulated:
    """What comes from a rehearsal cannot be taken for a measurement."""

    @pytest.fixture
    def latest(self, facts):
        from mpswatch.latest import Latest, Settings

        settings = Settings(daemons={facts.DAEMON: facts.PIPE}, poll_interval=15.0, sweep_interval=3600.0)
        made = Latest(settings, host=facts.HOST, simulated=True)
        made.record(facts.poll(simulated=True))
        made.record(facts.sweep(simulated=True))
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

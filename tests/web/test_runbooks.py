"""The runbooks are served by the watcher itself, so that an alert's link leads somewhere."""

from __future__ import annotations

import re

import httpx

from mpswatch.web import page_runbooks
from mpswatch.web.page_runbooks import runbooks_page


def test_every_section_of_the_runbooks_is_served_under_its_anchor(serving):
    page = httpx.get(f"{serving().url}/runbooks")
    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    titles = re.findall(r"^##? (.+)$", page_runbooks.RUNBOOKS.read_text(), re.MULTILINE)
    assert re.findall(r"<section id=\"[^\"]+\"><h2>([^<]+)</h2>", page.text) == titles
    assert "mpswatchforeigntenant" in re.findall(r'<section id="([^"]+)"', page.text)
    assert 'href="/runbooks"' in httpx.get(f"{serving().url}/").text


def test_what_the_runbooks_stress_list_and_quote_is_stressed_listed_and_quoted(tmp_path, monkeypatch):
    text = (
        "# Runbooks\n\nFirst, `ls -l <DIR>` and *only*\nthen:\n\n    kill -0 1   # looks\n    true\n\n"
        "## MpswatchOne\n\n**Never.** Do `x`.\n\n- a **b `c`**\n  d\n- e\n"
    )
    (tmp_path / "runbooks.md").write_text(text)
    monkeypatch.setattr(page_runbooks, "RUNBOOKS", tmp_path / "runbooks.md")
    page = runbooks_page("gpu-07", version="0", simulated=False)
    assert "<p>First, <code>ls -l &lt;DIR&gt;</code> and <em>only</em> then:</p>" in page
    assert "<span>kill -0 1   # looks</span>\n<span>true</span>\n</pre>" in page
    assert '<section id="mpswatchone"><h2>MpswatchOne</h2><p><strong>Never.</strong> Do <code>x</code>.</p>' in page
    assert "<ul><li>a <strong>b <code>c</code></strong> d</li><li>e</li></ul>" in page


def test_nothing_of_markdown_is_left_over_in_the_page():
    page = re.sub(r"<(code|pre|style)\b.*?</\1>", "", runbooks_page("gpu-07", version="0", simulated=False), flags=re.S)
    assert not re.findall(r"\*\*|`|^#|\]\(", page, re.MULTILINE)

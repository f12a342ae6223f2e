"""What every page has around its content, and the policy that it is served under."""

from __future__ import annotations

import base64
import hashlib
import math
from pathlib import Path

from mpswatch.markup.html import Markup, document, style, tag, void
from mpswatch.markup.style import CSS

SCRIPT = Path(__file__).with_name("page_live.js").read_bytes()
"""What brings the page up to date while it is open, served at /static/live.js."""

POLICY = (
    "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    "script-src 'self'; connect-src 'self'; img-src data:; "
    f"style-src 'sha256-{base64.b64encode(hashlib.sha256(CSS.encode()).digest()).decode()}'"
)


def shell(host: str, version: str, main: Markup, *, simulated: bool, every: float = 0.0, live: bool = False) -> str:
    """Write what every page has around its content. Each page of a simulated stack says so in title and banner."""
    seconds = str(max(2, math.ceil(every)))
    title = ("[SIMULATED] " if simulated else "") + f"mpswatch on {host}"
    refresh = tag("noscript", void("meta", http_equiv="refresh", content=seconds)) if live else Markup()
    banner = "SIMULATED: all of this comes from a rehearsal stack. No GPU was measured."
    links = (
        ("/", "status"),
        ("/runbooks", "runbooks"),
        ("/metrics", "metrics"),
        ("/api/v1/latest", "latest documents (JSON)"),
    )
    return document(
        tag(
            "html",
            tag(
                "head",
                void("meta", charset="utf-8"),
                void("meta", name="viewport", content="width=device-width,initial-scale=1"),
                tag("title", title),
                void("link", rel="icon", href="data:,"),
                style(CSS),
                refresh,
                tag("script", src="/static/live.js", defer=True) if live else Markup(),
            ),
            tag(
                "body",
                tag("a", "Skip to content", href="#main", class_="skip"),
                tag("aside", banner, class_="simulated", aria_label="Simulated") if simulated else Markup(),
                tag("header", tag("h1", f"mpswatch on {host}"), class_="top"),
                main,
                tag(
                    "footer",
                    tag(
                        "nav", tag("p", [[tag("a", text, href=path), " "] for path, text in links]), aria_label="Links"
                    ),
                    tag(
                        "p",
                        f"mpswatch {version} ",
                        tag("button", "Pause updates", id="pause", type="button", hidden=True),
                    )
                    if live
                    else tag("p", f"mpswatch {version}"),
                    tag("p", id="live", role="status") if live else Markup(),
                ),
            ),
            lang="en",
            data_every=seconds,
        )
    )

"""Draws README's picture: an archived run as `mpswatch archive show` prints it, as SVG.

usage: draw_sweep.py RUN.json OUTPUT.svg
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from rich.console import Console

from mpswatch.cli import show
from mpswatch.documents import SweepDocument, from_json


def main() -> None:
    run, output = Path(sys.argv[1]), Path(sys.argv[2])
    console = Console(record=True, width=86, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    show.print_sweep(from_json(run.read_bytes(), SweepDocument), console)
    svg = console.export_svg(title="mpswatch sweep")
    # rich names fonts on a content network: a picture in a repository reaches for nothing
    kept, inside = [], False
    for line in svg.splitlines():
        inside = inside or line.strip().startswith("@font-face")
        if not inside:
            kept.append(line.rstrip())
        elif line.strip() == "}":
            inside = False
    output.write_text("\n".join(kept) + "\n")


if __name__ == "__main__":
    main()

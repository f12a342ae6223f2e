"""HTML and SVG from plain values: what the status page and the report are written with. Pure."""

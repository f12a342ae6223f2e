"""The one place that starts programs: `ask` (under a deadline, ended when late) and `launch` (no way to end it)."""

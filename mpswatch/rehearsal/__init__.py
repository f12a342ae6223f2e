"""An embedded MPS stack without a GPU, from real processes: for `mpswatch demo` and the tests.

It never leaks into a real stack: it lives in a directory of its own, refuses one that holds anything else, and marks
its pipe directory with a socket named `rehearsal`. tell.py lists what it can be told.
"""

from mpswatch.rehearsal.demo import demo_stack
from mpswatch.rehearsal.layout import RehearsalError
from mpswatch.rehearsal.stack import Stack
from mpswatch.rehearsal.tell import tell

__all__ = ["RehearsalError", "Stack", "demo_stack", "tell"]

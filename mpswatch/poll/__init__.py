"""One look at everything: all sources side by side, each with its deadline, joined into one snapshot.

A source that does not come back is named, is not asked again until it does, and takes nothing else down.
"""

from mpswatch.poll.looks import DaemonAddress
from mpswatch.poll.poller import Poller

__all__ = ["DaemonAddress", "Poller"]

"""`mpswatch run` on a rehearsal stack that somebody else started: the same daemon, told that its stack is one."""

import os
import sys
from pathlib import Path

from mpswatch.config import load
from mpswatch.daemon import discovering
from mpswatch.daemon.run import run

if __name__ == "__main__":
    file = Path(sys.argv[1])
    # nobody waits a quarter of an hour here
    discovering.DROPPED_AFTER = float(os.environ.get("REHEARSE_DROPPED_AFTER", discovering.DROPPED_AFTER))
    os._exit(run(load(file), reread=lambda: load(file), simulated=True))

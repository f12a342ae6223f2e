"""Simulated and measured never come together: neither on one stack nor in one archive."""

from __future__ import annotations

from pathlib import Path

from mpswatch.config import Config
from mpswatch.daemon.parts import archive
from mpswatch.documents import Reason
from mpswatch.errors import MpswatchError
from mpswatch.mps import is_rehearsal
from mpswatch.process.watched import SourceStuck, Watched


class MixedStacksError(MpswatchError):
    """A rehearsal and a real stack would be mixed."""

    def __init__(self, detail: str, remedy: str) -> None:
        super().__init__(Reason.REHEARSAL_STACK, detail, remedy)


def refuse_mixed_stacks(config: Config, *, simulated: bool) -> None:
    """Raise `MixedStacksError` where simulated and measured would come together."""
    for daemon in config.daemons or ():  # those that are found are of the right kind
        if not simulated and is_rehearsal(Path(daemon.pipe_directory)):
            raise MixedStacksError(
                f"{daemon.pipe_directory} belongs to a rehearsal stack, and nothing in there is measured",
                "use `mpswatch demo` for a rehearsal, or name the real stack's pipe directory",
            )
    kept = archive(config, simulated=simulated)
    other = kept.holds_measured if simulated else kept.holds_simulated
    try:
        holds_other = Watched("archive").call(other, config.archive.deadline)
    except (SourceStuck, MpswatchError):
        return  # an archive that cannot be read is said when it is opened; each write is checked as well
    if holds_other:
        theirs, ours = ("measured", "a rehearsal") if simulated else ("a rehearsal's", "a real stack")
        raise MixedStacksError(
            f"{kept.directory} holds {theirs} runs, and {ours} does not write beside them",
            "name another directory with --archive",
        )

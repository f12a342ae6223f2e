"""The control daemon: asked everything on one connection, believed only by grammar, and never changed."""

from mpswatch.mps.asking import is_rehearsal, look
from mpswatch.mps.commands import ALLOWED, ForbiddenCommand
from mpswatch.mps.grammar import Reply
from mpswatch.mps.lines import ReplyError

__all__ = ["ALLOWED", "ForbiddenCommand", "Reply", "ReplyError", "is_rehearsal", "look"]

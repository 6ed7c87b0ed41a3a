"""The quorum that agrees on one log: KRaft's rules as a state machine without I/O.

Reading order: quorum (majorities, pure), events (what comes in, what goes out), core (the machine), quorum_state (the
file in which a voter keeps its word).
"""

from ottla.raft.core import RaftCore, Role
from ottla.raft.events import (
    AppendLeaderChange,
    Commit,
    Effect,
    Election,
    Flush,
    LogEnd,
    Persist,
    Send,
    Truncate,
)

__all__ = [
    "AppendLeaderChange",
    "Commit",
    "Effect",
    "Election",
    "Flush",
    "LogEnd",
    "Persist",
    "RaftCore",
    "Role",
    "Send",
    "Truncate",
]

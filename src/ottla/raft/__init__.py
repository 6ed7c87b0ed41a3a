"""The quorum that agrees on one log: KRaft's rules as a state machine without I/O.

Reading order: quorum (majorities as pure functions), events (events and effects), core (the state machine),
quorum_state (the file that stores a voter's election).
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

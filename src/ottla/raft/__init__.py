"""The quorum that agrees on one log: KRaft's rules as a state machine without I/O.

Reading order: values, voters, control (values and records); messages, events (what goes in and out); roles (the table
of states), ballot, log_state, leader, connections (parts without effects); state (what the parts share); news, voting,
leading, following, quorum_epochs, snapshots, voter_changes, starting (the rules); core (joins them); describe;
quorum_state and wire (Kafka's file and messages).
"""

from ottla.raft.config import QuorumConfig
from ottla.raft.core import RaftCore
from ottla.raft.describe import QuorumDescription, ReplicaDescription
from ottla.raft.events import Controls, Persist
from ottla.raft.roles import Role
from ottla.raft.state import QuorumError
from ottla.raft.values import Election, Endpoint, Endpoints, LogEnd, ReplicaKey
from ottla.raft.voters import Voter, VoterSet

__all__ = [
    "Controls",
    "Election",
    "Endpoint",
    "Endpoints",
    "LogEnd",
    "Persist",
    "QuorumConfig",
    "QuorumDescription",
    "QuorumError",
    "RaftCore",
    "ReplicaDescription",
    "ReplicaKey",
    "Role",
    "Voter",
    "VoterSet",
]

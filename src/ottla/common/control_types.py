"""The types of control records, which clients do not see."""

from enum import IntEnum


class ControlType(IntEnum):
    """The type of a control record. KIP-98 (markers), KIP-595, KIP-630, KIP-853."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6

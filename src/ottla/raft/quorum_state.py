"""The text of KRaft's `quorum-state` file: one line of JSON, version 0 (kraft.version 0, static voters).

Both versions are read: 1 is that of a quorum with kraft.version 1.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.common.numbers import numbers_in
from ottla.raft.events import Election

FILE_NAME = "quorum-state"
VERSIONS = (0, 1)


def encode(election: Election, voters: Iterable[int]) -> str:
    """The file's text."""
    current = ",".join(f'{{"voterId":{voter}}}' for voter in sorted(voters))
    return (
        f'{{"clusterId":"","leaderId":{election.leader_id},"leaderEpoch":{election.epoch},"votedId":{election.voted_id},'
        f'"appliedOffset":0,"currentVoters":[{current}],"data_version":0}}'
    )


def decode(text: str) -> Election:
    """The election in the file's text; ValueError if it is not such a text."""
    state = numbers_in(text)
    try:
        if state["data_version"] not in VERSIONS:
            raise ValueError(f"quorum-state of data_version {state['data_version']}, known are {VERSIONS}")
        return Election(state["leaderEpoch"], state["leaderId"], state["votedId"])
    except KeyError as error:
        raise ValueError(f"quorum-state lacks {error}: {text[:200]!r}") from error

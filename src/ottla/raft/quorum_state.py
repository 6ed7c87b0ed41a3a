"""The text of KRaft's `quorum-state` file: one line of JSON, version 0 (kraft.version 0, static voters).

Both versions are read: 1 is that of a quorum with kraft.version 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from ottla.raft.events import Election

FILE_NAME = "quorum-state"
VERSIONS = (0, 1)


def encode(election: Election, voters: Iterable[int]) -> str:
    """The file's text."""
    return json.dumps(
        {
            "clusterId": "",
            "leaderId": election.leader_id,
            "leaderEpoch": election.epoch,
            "votedId": election.voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter} for voter in sorted(voters)],
            "data_version": 0,
        },
        separators=(",", ":"),
    )


def decode(text: str) -> Election:
    """The election in the file's text; ValueError if it is not such a text."""
    try:
        state = json.loads(text)
        if state["data_version"] not in VERSIONS:
            raise ValueError(f"quorum-state of data_version {state['data_version']}, known are {VERSIONS}")
        return Election(int(state["leaderEpoch"]), int(state["leaderId"]), int(state["votedId"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"quorum-state lacks {error}: {text[:200]!r}") from error

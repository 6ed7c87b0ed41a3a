"""The text of KRaft's `quorum-state` file: one line of JSON, version 0 (kraft.version 0, static voters).

Version 1, of a quorum with kraft.version 1, can be read, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

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
    """Parse the file's text; raises ValueError unless it is an object with the election's numbers."""
    state = json.loads(text)
    if not isinstance(state, dict):
        raise ValueError(f"quorum-state is not an object: {text[:200]!r}")  # noqa: TRY004 - the text is wrong
    numbers = {name: value for name, value in state.items() if isinstance(value, int)}
    try:
        if numbers["data_version"] not in VERSIONS:
            raise ValueError(f"quorum-state of data_version {numbers['data_version']}, known are {VERSIONS}")
        return Election(numbers["leaderEpoch"], numbers["leaderId"], numbers["votedId"])
    except KeyError as error:
        raise ValueError(f"quorum-state lacks {error}: {text[:200]!r}") from error

"""The text of KRaft's `quorum-state` file: one line of JSON.

Version 0 belongs to kraft.version 0 and names the static voters. Version 1 belongs to kraft.version 1, whose voters are
in the log, and adds the directory of the candidate that received this replica's vote. KIP-595, KIP-853.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from ottla.common.ids import uuid_from_text, uuid_to_text
from ottla.raft.values import NO_NODE, Election, ReplicaKey
from ottla.raft.voters import DYNAMIC_VOTERS

FILE_NAME = "quorum-state"
VERSIONS = (0, 1)


def encode(election: Election, voters: Iterable[int], kraft_version: int = 0) -> str:
    """The file's text, in the version that belongs to this level of kraft.version."""
    leader = f'"leaderId":{election.leader_id},"leaderEpoch":{election.epoch},"votedId":{election.voted.node_id}'
    if kraft_version >= DYNAMIC_VOTERS:
        directory = uuid_to_text(election.voted.directory_id)
        return f'{{{leader},"votedDirectoryId":"{directory}","data_version":1}}'
    current = ",".join(f'{{"voterId":{voter}}}' for voter in sorted(voters))
    return f'{{"clusterId":"",{leader},"appliedOffset":0,"currentVoters":[{current}],"data_version":0}}'


def decode(text: str) -> Election:
    """Parse the file's text; raises ValueError unless it is an object with the election's fields."""
    state = json.loads(text)
    if not isinstance(state, dict):
        raise ValueError(f"quorum-state is not an object: {text[:200]!r}")  # noqa: TRY004 - the text is wrong
    numbers = {name: value for name, value in state.items() if isinstance(value, int)}
    try:
        version = numbers["data_version"]
        if version not in VERSIONS:
            raise ValueError(f"quorum-state of data_version {version}, known are {VERSIONS}")
        voted = ReplicaKey(numbers["votedId"])
        if version == 1 and voted.node_id != NO_NODE:
            voted = voted._replace(directory_id=uuid_from_text(str(state["votedDirectoryId"])))
        return Election(numbers["leaderEpoch"], numbers["leaderId"], voted)
    except KeyError as error:
        raise ValueError(f"quorum-state lacks {error}: {text[:200]!r}") from error

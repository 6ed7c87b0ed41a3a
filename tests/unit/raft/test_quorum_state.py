"""The quorum-state file has Kafka's bytes in both versions; a corrupt file is an error."""

from __future__ import annotations

import pytest

from ottla.common.ids import uuid_from_text
from ottla.raft import Election, ReplicaKey, quorum_state

DIRECTORY = "hV4lMKGOQ7WMWSKMo4CYAQ"


def test_version_0_names_the_static_voters() -> None:
    text = quorum_state.encode(Election(3, 1), {1, 2})
    assert text == (
        '{"clusterId":"","leaderId":1,"leaderEpoch":3,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}'
    )
    assert quorum_state.decode(text) == Election(3, 1)


def test_version_1_names_the_directory_of_the_candidate() -> None:
    election = Election(9, -1, ReplicaKey(2, uuid_from_text(DIRECTORY)))
    text = quorum_state.encode(election, {1, 2}, 1)
    assert text == (f'{{"leaderId":-1,"leaderEpoch":9,"votedId":2,"votedDirectoryId":"{DIRECTORY}","data_version":1}}')
    assert quorum_state.decode(text) == election


def test_version_1_without_a_vote_has_the_zero_directory() -> None:
    text = quorum_state.encode(Election(9, 3), (), 1)
    assert '"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA"' in text
    assert quorum_state.decode(text) == Election(9, 3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"data_version":2}',
        '{"data_version":0,"leaderId":1}',
        '{"data_version":0,"leaderId":1,"leaderEpoch":"3","votedId":1}',
        '{"data_version":0,"leaderId":1,"leaderEpoch":3.5,"votedId":1}',
        '{"data_version":0,"leaderId":1,"leaderEpoch":3,"votedId":1',
        '{"data_version":1,"leaderId":1,"leaderEpoch":3,"votedId":1}',
        '{"data_version":1,"leaderId":1,"leaderEpoch":3,"votedId":1,"votedDirectoryId":"?"}',
    ],
)
def test_corrupt_quorum_state_is_an_error_not_a_fresh_start(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        quorum_state.decode(text)

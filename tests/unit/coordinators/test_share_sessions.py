"""Share sessions: epochs, limits, lost connections. KIP-932."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinators.share.sessions import MAX_EPOCH, SessionKey, SharedTopicPartition, ShareSessions

KEY, OTHER = SessionKey("g", "m"), SessionKey("g", "n")
T0, T1, T2 = (SharedTopicPartition(bytes(16), index) for index in range(3))


def opened(limit: int = 2) -> ShareSessions:
    sessions = ShareSessions(limit)
    sessions.open(KEY, "connection", [T0, T1], acknowledges=False)
    return sessions


def test_session_retains_its_partitions_and_advances_its_epoch() -> None:
    sessions = opened()
    assert list(sessions.resume(KEY, 1).partitions) == [T0, T1]
    assert list(sessions.resume(KEY, 2, added=[T2], forgotten=[T0]).partitions) == [T1, T2]
    assert list(sessions.resume(KEY, 3, added=[T0], forgotten=[T0]).partitions) == [T1, T2]


@pytest.mark.parametrize("epoch", [0, 2, 7, MAX_EPOCH])
def test_wrong_epoch_is_refused_and_changes_nothing(epoch: int) -> None:
    sessions = opened()
    with pytest.raises(KafkaError) as caught:
        sessions.resume(KEY, epoch, added=[T2])
    assert caught.value.code is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert list(sessions.resume(KEY, 1).partitions) == [T0, T1]


def test_unknown_member_has_no_session() -> None:
    sessions = opened()
    for call in (lambda: sessions.resume(OTHER, 1), lambda: sessions.close(OTHER)):
        with pytest.raises(KafkaError) as caught:
            call()
        assert caught.value.code is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_epoch_after_the_last_is_one() -> None:
    sessions = opened()
    session = sessions.resume(KEY, 1)
    session.epoch = MAX_EPOCH
    sessions.resume(KEY, MAX_EPOCH)
    assert session.epoch == 1


def test_first_fetch_cannot_acknowledge() -> None:
    with pytest.raises(KafkaError) as caught:
        ShareSessions(1).open(KEY, "connection", [T0], acknowledges=True)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_number_of_sessions_is_limited_and_a_member_replaces_its_own() -> None:
    sessions = opened(limit=1)
    with pytest.raises(KafkaError) as caught:
        sessions.open(OTHER, "connection", [], acknowledges=False)
    assert caught.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert sessions.open(KEY, "later", [T2], acknowledges=False).epoch == 1
    assert sessions.close_connection("connection") == []
    assert [session.key for session in sessions.close_connection("later")] == [KEY]
    assert not sessions.has_members("g")


def test_closed_session_returns_its_partitions_once() -> None:
    sessions = opened()
    assert sessions.has_members("g")
    assert list(sessions.close(KEY).partitions) == [T0, T1]
    assert sessions.close_connection("connection") == []
    assert len(sessions) == 0

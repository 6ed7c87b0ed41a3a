"""Share sessions: the partitions that a member of a share group fetches from this broker, named once. KIP-932.

The caller's duties: after `close` and `close_connection`, release the records that the member has acquired in the
session's partitions. As in Kafka, a session that is replaced by a new one of the same member does not release them:
their locks elapse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import Uuid

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
MAX_EPOCH = 2**31 - 1


class SessionKey(NamedTuple):
    """A member of a share group."""

    group_id: str
    member_id: str


class SharedTopicPartition(NamedTuple):
    """A partition of a session. The topic may not exist, or no longer."""

    topic_id: Uuid
    partition: int


class ShareSession:
    """The partitions of a member, in the order in which it named them; `epoch` is the epoch of its next request."""

    __slots__ = ("connection", "epoch", "key", "partitions")

    def __init__(self, key: SessionKey, connection: Hashable) -> None:
        self.key = key
        self.connection = connection
        self.epoch = 1
        self.partitions: dict[SharedTopicPartition, None] = {}

    def _advance(self) -> None:
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1


class ShareSessions:
    """The sessions of all members, at most `limit` (group.share.max.share.sessions)."""

    __slots__ = ("_by_connection", "_limit", "_session_counts", "_sessions")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: dict[SessionKey, ShareSession] = {}
        # The number of sessions of each group.
        self._session_counts: Counter[str] = Counter()
        self._by_connection: dict[Hashable, dict[SessionKey, None]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, key: SessionKey) -> ShareSession | None:
        """The session of a member, if it has one."""
        return self._sessions.get(key)

    def has_members(self, group_id: str) -> bool:
        """Whether a member of the group has a session."""
        return group_id in self._session_counts

    def open(
        self, key: SessionKey, connection: Hashable, partitions: Iterable[SharedTopicPartition], *, acknowledges: bool
    ) -> ShareSession:
        """Open a session for a fetch of epoch 0; replaces the member's previous session.

        Raises INVALID_REQUEST if the fetch acknowledges records, and SHARE_SESSION_LIMIT_REACHED, which is retriable.
        """
        if acknowledges:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Acknowledge data present in Initial Fetch Request")
        self._remove(key)
        if len(self._sessions) >= self._limit:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[key] = ShareSession(key, connection)
        self._session_counts[key.group_id] += 1
        self._by_connection.setdefault(connection, {})[key] = None
        session.partitions.update(dict.fromkeys(partitions))
        return session

    def resume(
        self,
        key: SessionKey,
        epoch: int,
        added: Iterable[SharedTopicPartition] = (),
        forgotten: Iterable[SharedTopicPartition] = (),
    ) -> ShareSession:
        """Use the session for a request of `epoch`, and advance it.

        Raises SHARE_SESSION_NOT_FOUND or INVALID_SHARE_SESSION_EPOCH; the client then opens a new session. Only a fetch
        may open a session: an acknowledgement with epoch 0 has an invalid epoch.
        """
        if epoch == INITIAL_EPOCH:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        # As in Kafka: a partition that a request both adds and forgets is forgotten.
        session.partitions.update(dict.fromkeys(added))
        for partition in forgotten:
            session.partitions.pop(partition, None)
        session._advance()  # noqa: SLF001 - only ShareSessions may advance a session
        return session

    def close(self, key: SessionKey) -> ShareSession:
        """Close the session for a request of epoch -1. Raises SHARE_SESSION_NOT_FOUND."""
        session = self._remove(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    def close_connection(self, connection: Hashable) -> list[ShareSession]:
        """Close and return the sessions that were opened on a connection which is lost now."""
        keys = tuple(self._by_connection.get(connection, ()))
        return [session for key in keys if (session := self._remove(key)) is not None]

    def _remove(self, key: SessionKey) -> ShareSession | None:
        session = self._sessions.pop(key, None)
        if session is not None:
            self._session_counts[key.group_id] -= 1
            if not self._session_counts[key.group_id]:
                del self._session_counts[key.group_id]
            keys = self._by_connection.get(session.connection)
            if keys is not None:
                keys.pop(key, None)
                if not keys:
                    del self._by_connection[session.connection]
        return session

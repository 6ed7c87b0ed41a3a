"""A follower's fetch session and the session of its leader have the same positions after each answer.

Requests and responses are lost, and the leader evicts sessions.
"""

from __future__ import annotations

from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.common.errors import KafkaError
from ottla.partitions.fetch_session import INITIAL_EPOCH, NO_SESSION, FetchSession, FetchSessionCache
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.replication.follower import Position
from ottla.replication.session import FetchSettings, Key, ReplicaSession

KEYS: list[Key] = [(b"a" * 16, 0), (b"a" * 16, 1), (b"b" * 16, 0)]
Step = tuple[str, Key, int]


class Leader:
    """The sessions of a leader that has room for one, and evicts it if it must."""

    def __init__(self) -> None:
        ids = count(1)
        self.cache = FetchSessionCache(1, lambda: next(ids), min_eviction_ms=0)

    def answer(self, request: FetchRequest) -> tuple[FetchResponse, FetchSession | None]:
        """Take a request as the broker does; return the response and the session that it used."""
        if request.session_epoch == INITIAL_EPOCH:
            self.cache.remove(request.session_id)
            session = self.cache.open(0, uses_topic_ids=True)
        else:
            try:
                session = self.cache.resume(request.session_id, request.session_epoch, 0, uses_topic_ids=True)
            except KafkaError as error:
                return FetchResponse(error_code=error.code), None
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                session.forget((forgotten.topic_id, index))
        for topic in request.topics:
            for each in topic.partitions:
                session.state((topic.topic_id, each.partition)).fetch_offset = each.fetch_offset
        if not session.partitions and request.session_epoch > INITIAL_EPOCH:
            self.cache.remove(session.id)
            session.id = NO_SESSION
        return FetchResponse(session_id=session.id), session


STEPS: st.SearchStrategy[Step] = st.tuples(
    st.sampled_from(["want", "want", "drop", "fetch", "fetch", "lose request", "lose response", "evict"]),
    st.sampled_from(KEYS),
    st.integers(0, 3),
)


def fetch(session: ReplicaSession, leader: Leader, wanted: dict[Key, int], *, lost: str = "") -> bool:
    """Fetch once; return whether leader and follower then agree, and check it."""
    request = session.build(7)
    if lost == "lose request":
        session.start_over()
        return False
    response, used = leader.answer(request)
    if lost:
        session.start_over()
        return False
    if not session.on_response(response):
        assert used is None
        return False
    assert used is not None
    assert {key: state.fetch_offset for key, state in used.partitions.items()} == wanted
    for key, offset in wanted.items():
        position = session.requested(key)
        assert position is not None
        assert position.fetch_offset == offset
    return True


@settings(max_examples=60)
@given(st.lists(STEPS, min_size=10, max_size=25))
def test_leader_reads_from_the_positions_that_the_follower_wants(steps: list[Step]) -> None:
    session, leader = ReplicaSession(2, FetchSettings()), Leader()
    wanted: dict[Key, int] = {}
    sent: dict[Key, int] = {}
    for kind, key, offset in steps:
        if kind == "want":
            session.want(key, Position(offset, 0, 3, 0))
            wanted[key] = offset
        elif kind == "drop":
            session.drop(key)
            wanted.pop(key, None)
        elif kind == "evict":
            leader.cache.open(0, uses_topic_ids=True)
        else:
            fetch(session, leader, wanted, lost="" if kind == "fetch" else kind)
        if kind in ("want", "drop"):
            # The answer to the last request is used only if the partition is still at that position.
            found = session.requested(key)
            assert found is None or found.fetch_offset == sent.get(key)
        elif kind != "evict":
            sent = dict(wanted)
    assert len(session) == len(wanted)
    # However the session was disturbed, two fetches repair it: one may learn that the session is unknown.
    assert fetch(session, leader, wanted) or fetch(session, leader, wanted)
    request = session.build(7)
    # A session of a leader ends with its last partition.
    assert request.session_epoch > INITIAL_EPOCH or not wanted
    assert not request.topics
    assert not request.forgotten_topics_data

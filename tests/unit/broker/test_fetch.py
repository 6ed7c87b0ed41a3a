"""Fetch: incremental sessions, long polls, limits, and fairness between partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.partitions.fetching import Fetch
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.records import BatchProducer

from .harness import LONG, BrokerHarness, Connection, batch, open_harness, records_of

Key = tuple[str, int]


def request(offsets: Mapping[Key, int], **fields: Any) -> FetchRequest:
    """A Fetch request by topic name; `each` has fields for every partition."""
    each = {"partition_max_bytes": 1 << 20} | fields.pop("each", {})
    topics: dict[str, FetchTopic] = {}
    for (topic, index), offset in offsets.items():
        partition = FetchPartition(partition=index, fetch_offset=offset, **each)
        topics.setdefault(topic, FetchTopic(topic=topic)).partitions.append(partition)
    return FetchRequest(**{"min_bytes": 1, "topics": list(topics.values())} | fields)


def partitions_in(response: Any) -> dict[Key, Any]:
    return {(topic.topic, part.partition_index): part for topic in response.responses for part in topic.partitions}


def values(response: Any) -> dict[Key, list[bytes | None]]:
    return {key: [value for _, value in records_of(part.records)] for key, part in partitions_in(response).items()}


class Client:
    """A client that follows KIP-227: it repeats a partition only when its offset has changed."""

    def __init__(self, harness: BrokerHarness, keys: Iterable[Key] = (), **fields: Any) -> None:
        self.harness = harness
        self.offsets: dict[Key, int] = dict.fromkeys(keys, 0)
        self.fields = fields
        self.id = self.epoch = 0
        self.changed: dict[Key, int] = dict(self.offsets)
        self.forgotten: list[Key] = []

    def seek(self, key: Key, offset: int) -> None:
        self.offsets[key] = self.changed[key] = offset

    def forget(self, key: Key) -> None:
        del self.offsets[key]
        self.changed.pop(key, None)
        self.forgotten.append(key)

    def send(self, **fields: Any) -> Any:
        asked = self.changed if self.epoch else self.offsets
        forgotten = [ForgottenTopic(topic=topic, partitions=[index]) for topic, index in self.forgotten]
        fetch = request(
            asked,
            session_id=self.id,
            session_epoch=self.epoch,
            forgotten_topics_data=forgotten if self.epoch else [],
            **self.fields | fields,
        )
        self.changed, self.forgotten = {}, []
        return self.harness.start(fetch, 12)

    def take(self, response: Any) -> dict[Key, list[tuple[int, bytes | None]]]:
        """Advance the offsets behind the response; returns only the requested records."""
        if response.error_code:
            self.id = self.epoch = 0
            return {}
        self.id, self.epoch = response.session_id, (self.epoch + 1 if response.session_id else 0)
        found = {}
        for key, part in partitions_in(response).items():
            assert part.error_code == 0
            got = [record for record in records_of(part.records) if record[0] >= self.offsets[key]]
            if got:
                found[key] = got
                self.seek(key, got[-1][0] + 1)
        return found

    def poll(self, **fields: Any) -> Any:
        """Return the response, which must be complete at once."""
        response = self.send(**fields)
        assert not isinstance(response, Completion), "the response is not complete"
        self.take(response)
        return response


def names(harness: BrokerHarness, count: int, topic: str = "t") -> list[Key]:
    harness.create(topic, count)
    return [(topic, index) for index in range(count)]


# -- sessions ----------------------------------------------------------------------------------------------------


def test_full_fetch_returns_every_partition_and_later_fetches_only_changed_ones(harness: BrokerHarness) -> None:
    client = Client(harness, names(harness, 3))
    harness.append("t", b"a", index=1)
    first = client.poll()
    assert first.session_id != 0
    assert values(first) == {("t", 0): [], ("t", 1): [b"a"], ("t", 2): []}
    harness.append("t", b"b", index=2)
    assert values(client.poll()) == {("t", 2): [b"b"]}
    assert partitions_in(client.poll(min_bytes=0)) == {}
    assert client.id == first.session_id


def test_partition_is_added_to_a_session_and_forgotten_again(harness: BrokerHarness) -> None:
    a, b = names(harness, 2)
    client = Client(harness, [a])
    client.poll(min_bytes=0)
    client.seek(b, 0)
    harness.append("t", b"x", index=1)
    assert values(client.poll()) == {b: [b"x"]}
    client.forget(b)
    harness.append("t", b"y", index=1)
    assert partitions_in(client.poll(max_wait_ms=0)) == {}
    assert not harness.partition("t", 1).watchers


def test_session_whose_last_partition_is_forgotten_is_closed(harness: BrokerHarness) -> None:
    (key,) = names(harness, 1)
    client = Client(harness, [key])
    client.poll(min_bytes=0)
    client.forget(key)
    last = client.send()
    assert (last.error_code, last.session_id, last.responses) == (0, 0, [])
    assert len(harness.broker.fetch_sessions) == 0
    assert not harness.partition("t").watchers


def test_session_of_a_thousand_partitions_looks_only_at_the_changed_partition(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(harness, names(harness, 1000))
    client.poll(min_bytes=0)
    client.poll(min_bytes=0)
    read: list[int] = []
    partition_class = type(harness.partition("t"))
    original = partition_class.look_up

    def counted(self: Any, *arguments: Any, **options: Any) -> bytes:
        read.append(self.topic_partition.partition)
        return original(self, *arguments, **options)

    monkeypatch.setattr(partition_class, "look_up", counted)
    harness.append("t", b"x", index=617)
    assert values(client.poll()) == {("t", 617): [b"x"]}
    assert read == [617]


def test_fetch_reports_changed_high_watermark_and_log_start_without_new_data(
    harness: BrokerHarness,
) -> None:
    (key,) = names(harness, 1)
    client = Client(harness, [key])
    harness.append("t", b"a", b"b")
    client.poll()
    # The response with the data also reported both offsets, so that nothing is left to report.
    assert partitions_in(client.poll(max_wait_ms=0)) == {}
    harness.partition("t").delete_records_before(2)
    part = partitions_in(client.poll(max_wait_ms=0))[key]
    assert (part.log_start_offset, part.high_watermark, part.records) == (2, 2, b"")
    assert partitions_in(client.poll(max_wait_ms=0)) == {}


def test_errors_of_sessions(harness: BrokerHarness) -> None:
    (key,) = names(harness, 1)
    client = Client(harness, [key])
    client.poll(min_bytes=0)
    wrong_epoch = harness.start(request({}, session_id=client.id, session_epoch=9), 12)
    assert wrong_epoch.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    unknown = harness.start(request({}, session_id=client.id + 1, session_epoch=1), 12)
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    by_id = harness.start(request({}, session_id=client.id, session_epoch=client.epoch), 13)
    assert by_id.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert (wrong_epoch.session_id, unknown.responses, by_id.responses) == (0, [], [])
    # The session is still usable after these errors.
    harness.append("t", b"a")
    assert values(client.poll()) == {key: [b"a"]}


def test_final_epoch_closes_the_session_and_responds_without_one(harness: BrokerHarness) -> None:
    (key,) = names(harness, 1)
    client = Client(harness, [key])
    client.poll(min_bytes=0)
    closing = harness.start(request({key: 0}, session_id=client.id, session_epoch=-1, min_bytes=0), 12)
    assert (closing.session_id, set(partitions_in(closing))) == (0, {key})
    assert len(harness.broker.fetch_sessions) == 0
    assert not harness.partition("t").watchers


def test_full_session_cache_serves_without_a_session_until_one_is_idle(tmp_path: Path) -> None:
    with open_harness(tmp_path, {"max.incremental.fetch.session.cache.slots": "2"}) as harness:
        keys = names(harness, 1)
        clients = [Client(harness, keys) for _ in range(3)]
        for client in clients:
            client.poll(min_bytes=0)
        assert [client.id != 0 for client in clients] == [True, True, False]
        harness.loop.advance(119_000)
        clients[0].poll(min_bytes=0)
        harness.loop.advance(2_000)
        clients[2].poll(min_bytes=0)
        assert clients[2].id != 0
        # The second session evicted the first, which had been quiet for two minutes.
        assert clients[1].send(min_bytes=0).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert clients[0].send(min_bytes=0).error_code == 0


def test_fetch_without_a_session_leaves_nothing_behind(harness: BrokerHarness) -> None:
    (key,) = names(harness, 1)
    harness.append("t", b"a")
    for version in (4, 6, 11, 12):
        response = harness.start(request({key: 0}), version)
        assert (response.session_id, values(response)) == (0, {key: [b"a"]})
    waits = harness.start(request({key: 1}, max_wait_ms=100), 12)
    harness.loop.advance(100)
    assert waits.done
    assert not harness.partition("t").watchers
    assert len(harness.broker.fetch_sessions) == 0


# -- long polls --------------------------------------------------------------------------------------------------


def test_long_poll_waits_for_min_bytes_over_all_partitions(harness: BrokerHarness) -> None:
    client = Client(harness, names(harness, 3))
    client.poll(min_bytes=0)
    size = len(batch(b"x" * 100))
    answer = client.send(min_bytes=2 * size, max_wait_ms=LONG)
    harness.append("t", b"x" * 100, index=0)
    harness.loop.run()
    assert not answer.done
    harness.append("t", b"x" * 100, index=2)
    harness.loop.run()
    assert set(values(answer.result())) == {("t", 0), ("t", 2)}
    assert harness.loop.pending_timers == 0


def test_long_poll_returns_available_data_at_its_deadline(harness: BrokerHarness) -> None:
    (key,) = names(harness, 1)
    client = Client(harness, [key])
    harness.append("t", b"a")
    answer = client.send(min_bytes=10_000, max_wait_ms=500)
    harness.loop.advance(499)
    assert not answer.done
    harness.loop.advance(1)
    assert values(answer.result()) == {key: [b"a"]}


def test_min_bytes_above_max_bytes_is_met_by_a_full_response(harness: BrokerHarness) -> None:
    (key,) = names(harness, 1)
    harness.append("t", b"x" * 500)
    answer = harness.start(request({key: 0}, min_bytes=1 << 20, max_bytes=200, max_wait_ms=LONG), 12)
    assert values(answer) == {key: [b"x" * 500]}


def test_appends_of_one_iteration_come_in_one_response(harness: BrokerHarness) -> None:
    (key,) = names(harness, 1)
    answer = harness.start(request({key: 0}, max_wait_ms=LONG), 12)
    harness.append("t", b"a")
    harness.append("t", b"b")
    assert not answer.done
    harness.loop.run()
    assert values(answer.result()) == {key: [b"a", b"b"]}


def test_deleted_topic_ends_a_long_poll(harness: BrokerHarness) -> None:
    a, b = names(harness, 1), names(harness, 1, "other")
    client = Client(harness, a + b)
    client.poll(min_bytes=0)
    answer = client.send(max_wait_ms=LONG)
    harness.delete("t")
    harness.loop.run()
    errors = {key: part.error_code for key, part in partitions_in(answer.result()).items()}
    assert errors == {("t", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_delete_records_ends_a_long_poll_at_a_deleted_offset(harness: BrokerHarness) -> None:
    a, b = names(harness, 2)
    harness.append("t", b"x" * 100)
    answer = harness.start(request({a: 0, b: 0}, min_bytes=10_000, max_wait_ms=LONG), 12)
    deletion = DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 1)])])
    assert harness.ask(deletion).topics[0].partitions[0].low_watermark == 1
    assert answer.done
    assert partitions_in(answer.result())[a].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_disconnected_client_leaves_no_timer_and_no_watcher(harness: BrokerHarness) -> None:
    (key,) = names(harness, 1)
    connection = Connection()
    answer = harness.start(request({key: 0}, max_wait_ms=LONG), 12, connection)
    connection.drop()
    harness.append("t", b"a")
    harness.loop.advance(LONG)
    assert not answer.done
    assert not harness.partition("t").watchers
    assert harness.loop.pending_timers == 0


def test_session_on_a_new_connection_is_notified_after_the_old_connection_ends(harness: BrokerHarness) -> None:
    (key,) = names(harness, 1)
    client = Client(harness, [key])
    client.poll(min_bytes=0)
    old = Connection()
    harness.start(request({}, session_id=client.id, session_epoch=1, max_wait_ms=LONG), 12, old)
    answer = harness.start(request({}, session_id=client.id, session_epoch=2, max_wait_ms=LONG), 12)
    old.drop()
    harness.append("t", b"a")
    harness.loop.run()
    assert values(answer.result()) == {key: [b"a"]}


def test_open_transaction_hides_records_from_read_committed_until_it_ends(harness: BrokerHarness) -> None:
    (key,) = names(harness, 1)
    harness.append("t", b"open", producer=BatchProducer(7, 0, 0), attributes=0x10)
    committed = harness.start(request({key: 0}, isolation_level=1, max_wait_ms=LONG), 12)
    assert values(harness.start(request({key: 0}), 12)) == {key: [b"open"]}
    harness.append("t", b"plain")
    harness.loop.run()
    assert not committed.done
    marker = batch(b"\0\0\0\0\0\0", key=b"\0\0\0\1", producer=BatchProducer(7, 0), attributes=0x30)
    harness.partition("t").append(memoryview(marker), origin="coordinator")
    harness.loop.run()
    part = partitions_in(committed.result())[key]
    assert part.last_stable_offset == part.high_watermark == 3
    assert [value for _, value in records_of(part.records)][:2] == [b"open", b"plain"]
    assert part.aborted_transactions == []


def test_aborted_transactions_are_returned_with_their_data(harness: BrokerHarness) -> None:
    (key,) = names(harness, 1)
    for producer in (7, 8):
        harness.append("t", b"x" * 100, producer=BatchProducer(producer, 0, 0), attributes=0x10)
        marker = batch(b"\0\0\0\0\0\0", key=b"\0\0\0\0", producer=BatchProducer(producer, 0), attributes=0x30)
        harness.partition("t").append(memoryview(marker), origin="coordinator")
    everything = partitions_in(harness.start(request({key: 0}, isolation_level=1), 12))[key]
    assert [(a.producer_id, a.first_offset) for a in everything.aborted_transactions] == [(7, 0), (8, 2)]
    first = partitions_in(harness.start(request({key: 0}, isolation_level=1, max_bytes=1), 12))[key]
    assert [(a.producer_id, a.first_offset) for a in first.aborted_transactions] == [(7, 0)]
    assert partitions_in(harness.start(request({key: 0}), 12))[key].aborted_transactions is None


# -- limits and fairness -----------------------------------------------------------------------------------------


def test_first_batch_above_the_limit_is_returned_alone(harness: BrokerHarness) -> None:
    a, b = names(harness, 2)
    for index in range(2):
        harness.append("t", b"x" * 5000, index=index)
    for limits in ({"max_bytes": 10}, {"each": {"partition_max_bytes": 10}}):
        response = harness.start(request({a: 0, b: 0}, **limits), 12)
        assert values(response) == {a: [b"x" * 5000], b: []}


@pytest.mark.parametrize("limits", [{"each": {"partition_max_bytes": -1}}, {"max_bytes": -1}, {"max_bytes": -(2**31)}])
def test_negative_limit_counts_as_the_smallest_limit(harness: BrokerHarness, limits: dict[str, Any]) -> None:
    harness.create("t")
    for value in (b"a", b"b", b"c"):
        harness.append("t", value)
    assert values(harness.start(request({("t", 0): 0}, **limits), 12)) == {("t", 0): [b"a"]}


def test_response_stays_within_max_bytes_after_its_first_batch(harness: BrokerHarness) -> None:
    (key,) = names(harness, 1)
    for _ in range(10):
        harness.append("t", b"x" * 1000)
    size = len(batch(b"x" * 1000))
    response = harness.start(request({key: 0}, max_bytes=3 * size + 1), 12)
    assert len(partitions_in(response)[key].records) == 3 * size
    response = harness.start(request({key: 0}, each={"partition_max_bytes": 2 * size}), 12)
    assert len(partitions_in(response)[key].records) == 2 * size


def test_partition_with_endless_data_does_not_starve_the_others(harness: BrokerHarness) -> None:
    keys = names(harness, 3)
    for index in range(3):
        for i in range(4):
            harness.append("t", b"%d-%d" % (index, i) + b"x" * 1000, index=index)
    client = Client(harness, keys, max_bytes=1)
    served = []
    for _ in range(12):
        harness.append("t", b"more" + b"x" * 1000, index=0)
        served += [key[1] for key, got in values(client.poll()).items() if got]
    assert all(served[i : i + 3].count(0) == 1 for i in range(0, 12, 3)), served
    assert sorted(served) == [0] * 4 + [1] * 4 + [2] * 4


# -- leader epochs and errors ------------------------------------------------------------------------------------


def test_older_or_unknown_leader_epoch_is_rejected(harness: BrokerHarness) -> None:
    (key,) = names(harness, 1)
    harness.partition("t").leader_epoch = 5
    harness.append("t", b"a")
    codes = {}
    for epoch in (-1, 4, 5, 6):
        response = harness.start(request({key: 0}, each={"current_leader_epoch": epoch}, max_wait_ms=LONG), 12)
        codes[epoch] = partitions_in(response)[key].error_code
    assert codes == {-1: 0, 4: ErrorCode.FENCED_LEADER_EPOCH, 5: 0, 6: ErrorCode.UNKNOWN_LEADER_EPOCH}


def test_diverging_epoch_contains_the_offset_to_truncate_to(harness: BrokerHarness) -> None:
    (key,) = names(harness, 1)
    partition = harness.partition("t")
    harness.append("t", b"a", b"b")
    partition.leader_epoch = 3
    harness.append("t", b"c")
    # The log does not contain the offset or the epoch of the last fetch.
    for offset, epoch in ((3, 0), (3, 1), (2, 1)):
        asked = request({key: offset}, each={"last_fetched_epoch": epoch}, max_wait_ms=LONG)
        diverging = partitions_in(harness.start(asked, 12))[key]
        assert (diverging.diverging_epoch.epoch, diverging.diverging_epoch.end_offset) == (0, 2)
        assert diverging.records == b""
    same = partitions_in(harness.start(request({key: 2}, each={"last_fetched_epoch": 0}), 12))[key]
    assert same.diverging_epoch.epoch == -1
    assert records_of(same.records) == [(2, b"c")]
    unknown = partitions_in(harness.start(request({key: 2}, each={"last_fetched_epoch": 9}), 12))[key]
    assert unknown.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_partition_errors_are_returned_with_data_of_others_until_they_end(harness: BrokerHarness) -> None:
    a, b = names(harness, 2)
    harness.append("t", b"x")
    client = Client(harness, [a, b, ("gone", 0), ("t", 7)])
    client.offsets[b] = 5
    for _ in range(2):
        response = client.send(max_wait_ms=LONG)
        assert {key: part.error_code for key, part in partitions_in(response).items() if part.error_code} == {
            b: ErrorCode.OFFSET_OUT_OF_RANGE,
            ("gone", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        client.id, client.epoch = response.session_id, client.epoch + 1
    harness.create("gone")
    client.seek(b, 0)
    client.forget(("t", 7))
    response = client.send(min_bytes=0)
    assert not any(part.error_code for part in partitions_in(response).values())


def test_topics_by_id(harness: BrokerHarness) -> None:
    topic_id = harness.create("t")
    harness.append("t", b"a")
    topics = [
        FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition_max_bytes=100)]),
        FetchTopic(topic_id=b"\1" * 16, partitions=[FetchPartition(partition_max_bytes=100)]),
    ]
    response = harness.start(FetchRequest(min_bytes=1, topics=topics), 18)
    codes = {topic.topic_id: topic.partitions[0].error_code for topic in response.responses}
    assert codes == {topic_id: 0, b"\1" * 16: ErrorCode.UNKNOWN_TOPIC_ID}


def test_fetch_at_an_uncommitted_offset_returns_no_records(tmp_path: Path) -> None:
    with open_harness(tmp_path, {"log.flush.interval.messages": "1"}) as harness:
        (key,) = names(harness, 1)
        harness.threads.held = True
        harness.append("t", b"a" * 200)
        harness.append("t", b"b" * 200)
        for offset in (0, 1, 2):
            part = partitions_in(harness.start(request({key: offset}), 12))[key]
            assert (part.error_code, part.records, part.high_watermark) == (0, b"", 0)
        assert partitions_in(harness.start(request({key: 3}), 12))[key].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        # Each becomes visible after at most one fsync, and counts with its real size.
        answer = harness.start(request({key: 0}, min_bytes=500, max_wait_ms=LONG), 12)
        while harness.threads.work:
            harness.threads.finish()
        harness.loop.run()
        assert values(answer.result()) == {key: [b"a" * 200, b"b" * 200]}


def test_append_during_the_look_is_not_missed(harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    for topic in ("a", "b"):
        harness.create(topic)
    client = Client(harness, [("a", 0), ("b", 0)], max_wait_ms=LONG)
    examine, values_left = Fetch._examine, [b"v"]

    def then_append(self: Fetch, *arguments: Any) -> None:
        """As the waiter of a record that a follower's position commits."""
        examine(self, *arguments)
        if values_left:
            harness.append("a", values_left.pop())

    monkeypatch.setattr(Fetch, "_examine", then_append)
    answer = client.send()
    assert isinstance(answer, Completion)
    harness.loop.run()
    assert values(answer.result())["a", 0] == [b"v"]

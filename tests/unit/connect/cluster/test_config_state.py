"""The topic of configurations: records of a stock worker, half-written tasks, compaction."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.connect.cluster import keys, values
from ottla.connect.cluster.config_state import (
    ConfigState,
    ConnectorChanged,
    Ignored,
    LoggerChanged,
    RestartRequested,
    SessionKeyChanged,
)
from ottla.connect.cluster.values import SessionKey
from ottla.connect.runtime import TargetState

Record = tuple[bytes, bytes | None]

# As a distributed worker of Kafka 4.3.0 wrote them.
STOCK: list[Record] = [
    (
        b"session-key",
        b'{"key":"6F4O9a55A1JQP3vPbcecnzkIuLeVfl4mTvI25nBbyLg=","algorithm":"HmacSHA256","creation-timestamp":1795888645627}',
    ),
    (b"connector-src-x", b'{"properties":{"connector.class":"FileStreamSource","topic":"t","name":"src-x"}}'),
    (b"task-src-x-0", b'{"properties":{"task.class":"org.apache.kafka.connect.file.FileStreamSourceTask"}}'),
    (b"commit-src-x", b'{"tasks":1}'),
    (b"tasks-fencing-src-x", b'{"task-count":1}'),
    (b"commit-src-x", b'{"tasks":0}'),
    (b"target-state-src-x", b'{"state":"PAUSED","state.v2":"STOPPED"}'),
    (b"restart-connector-src-x", b'{"include-tasks":true,"only-failed":false}'),
    (b"logger-cluster-org.apache", b'{"level":"ERROR"}'),
]


def applied(records: list[Record]) -> ConfigState:
    state = ConfigState()
    for offset, (key, value) in enumerate(records):
        state.apply(key, value, offset)
    return state


def tasks(name: str, *configs: dict[str, str]) -> list[Record]:
    return [(f"task-{name}-{i}".encode(), values.config(config)) for i, config in enumerate(configs)]


def commit(name: str, count: int) -> Record:
    return (keys.COMMIT + name).encode(), values.commit(count)


def connector(name: str, **config: str) -> Record:
    return (keys.CONNECTOR + name).encode(), values.config(config)


def test_records_are_written_byte_for_byte_as_by_a_stock_worker() -> None:
    key = applied(STOCK).session_key
    assert key is not None
    config = {"connector.class": "FileStreamSource", "topic": "t", "name": "src-x"}
    assert [value for _, value in STOCK] == [
        values.session_key(key),
        values.config(config),
        values.config({"task.class": "org.apache.kafka.connect.file.FileStreamSourceTask"}),
        values.commit(1),
        values.task_count(1),
        values.commit(0),
        values.target(TargetState.STOPPED),
        values.restart(only_failed=False, include_tasks=True),
        values.logger("ERROR"),
    ]


def test_records_of_a_stock_worker_are_read() -> None:
    state = ConfigState()
    events = [state.apply(key, value, offset) for offset, (key, value) in enumerate(STOCK)]
    key = state.session_key
    assert key is not None
    assert (len(key.key), key.algorithm, key.created_ms) == (32, "HmacSHA256", 1795888645627)
    assert events == [
        SessionKeyChanged(key),
        ConnectorChanged("src-x"),
        None,
        ConnectorChanged("src-x"),
        None,
        ConnectorChanged("src-x"),
        ConnectorChanged("src-x"),
        RestartRequested("src-x", only_failed=False, include_tasks=True),
        LoggerChanged("org.apache", "ERROR"),
    ]
    assert state.next_offset == len(STOCK)
    assert state.connectors() == ["src-x"]
    assert state.target("src-x") is TargetState.STOPPED
    assert state.task_configs("src-x") == ()
    assert state.task_count("src-x") == 1
    assert state.needs_fencing("src-x")
    assert state.task_generation("src-x") == 1


def test_half_written_tasks_have_no_effect() -> None:
    """The leader died between the task configurations and their commit record."""
    before = [connector("c"), *tasks("c", {"a": "1"}, {"a": "2"}), commit("c", 2)]
    state = applied([*before, *tasks("c", {"a": "3"})])
    assert state.task_configs("c") == ({"a": "1"}, {"a": "2"})
    assert state.task_generation("c") == 0


def test_incomplete_tasks_are_inconsistent_until_they_are_written_again() -> None:
    """Compaction has removed the first of two task configurations."""
    state = applied([connector("c"), *tasks("c", {"a": "1"}, {"a": "2"})[1:], commit("c", 2)])
    assert state.is_inconsistent("c")
    assert state.task_configs("c") == ()
    for record in [*tasks("c", {"a": "3"}, {"a": "4"}), commit("c", 2)]:
        state.apply(*record, state.next_offset)
    assert not state.is_inconsistent("c")
    assert state.task_configs("c") == ({"a": "3"}, {"a": "4"})


def test_an_incomplete_set_is_not_completed_by_a_later_one() -> None:
    """Configurations of two writes must not run together: they may divide the work in another way."""
    first = tasks("c", {"w": "old-0"}, {"w": "old-1"})
    second = tasks("c", {"w": "new-0"}, {"w": "new-1"})
    state = applied([connector("c"), first[1], commit("c", 2), second[0], commit("c", 2)])
    assert state.task_configs("c") == ()
    assert state.is_inconsistent("c")


def test_fewer_tasks_ignore_the_configurations_of_surplus_ones() -> None:
    state = applied([connector("c"), *tasks("c", {"a": "1"}, {"a": "2"}), commit("c", 1)])
    assert state.task_configs("c") == ({"a": "1"},)


def test_a_deleted_connector_has_no_tasks_but_its_producers_remain_to_be_fenced() -> None:
    created = [connector("c"), *tasks("c", {}), commit("c", 1), (b"tasks-fencing-c", values.task_count(3))]
    state = applied([*created, (b"connector-c", None), (b"target-state-c", None)])
    assert (state.connectors(), state.config("c"), state.task_configs("c")) == ([], None, ())
    assert state.task_count("c") == 3


def test_tasks_of_a_connector_without_a_configuration_are_ignored() -> None:
    """Compaction has removed the configuration and the tombstone of a deleted connector."""
    state = applied([*tasks("c", {}), commit("c", 1)])
    assert state.task_configs("c") == ()
    state.apply(*connector("c"), 9)
    assert state.task_configs("c") == ()


def test_a_fencing_is_needed_until_the_number_of_producers_is_written_after_the_tasks() -> None:
    state = applied([connector("c"), *tasks("c", {}), commit("c", 1)])
    assert state.needs_fencing("c")
    state.apply(b"tasks-fencing-c", values.task_count(1), 9)
    assert not state.needs_fencing("c")
    for record in [*tasks("c", {}), commit("c", 1)]:
        state.apply(*record, 10)
    assert state.needs_fencing("c")


def test_the_configuration_that_tasks_were_written_for_is_known() -> None:
    state = applied([connector("c", v="1"), *tasks("c", {}), commit("c", 1), connector("c", v="2")])
    assert state.applied_config("c") == {"v": "1"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"state":"PAUSED"}', TargetState.PAUSED),
        (b'{"state":"PAUSED","state.v2":null}', TargetState.PAUSED),
        (b'{"state":"PAUSED","state.v2":"STOPPED"}', TargetState.STOPPED),
        (b'{"schema":{"type":"struct"},"payload":{"state":"PAUSED"}}', TargetState.PAUSED),
        (b'{"state":"RESTED"}', TargetState.STARTED),
        (None, TargetState.STARTED),
    ],
)
def test_target_states_of_all_versions_are_read(value: bytes | None, expected: TargetState) -> None:
    assert applied([connector("c"), (b"target-state-c", value)]).target("c") is expected


def test_names_with_hyphens_and_numbers_are_names() -> None:
    state = applied([connector("a-1-2"), (b"task-a-1-2-0", values.config({"x": "y"})), commit("a-1-2", 1)])
    assert state.task_configs("a-1-2") == ({"x": "y"},)


@pytest.mark.parametrize(
    "record",
    [
        (b"unknown", b"{}"),
        (b"task-c", b"{}"),
        (b"task-c-x", values.config({})),
        (b"task-c-0", None),
        (b"connector-c", b"not json"),
        (b"connector-c", b"[]"),
        (b"connector-c", b'{"properties":1}'),
        (b"commit-c", b'{"tasks":-1}'),
        (b"commit-c", b'{"tasks":true}'),
        (b"tasks-fencing-c", None),
        (b"session-key", b'{"key":"%","algorithm":"HmacSHA256","creation-timestamp":1}'),
        (b"logger-cluster-x", None),
        (b"\xff", b"{}"),
    ],
)
def test_records_that_cannot_be_read_have_no_effect(record: Record) -> None:
    state = applied([connector("c", a="b")])
    assert isinstance(state.apply(*record, 1), Ignored)
    assert state.config("c") == {"a": "b"}
    assert state.next_offset == 2


def test_settings_without_a_value_are_absent() -> None:
    assert applied([(b"connector-c", b'{"properties":{"a":null,"b":"1"}}')]).config("c") == {"b": "1"}


def test_a_session_key_is_written_as_base64() -> None:
    key = SessionKey(b"\x00\xff" * 16, "HmacSHA256", 5)
    assert applied([(b"session-key", values.session_key(key))]).session_key == key


_writes = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), min_size=1, max_size=8)


@given(_writes, st.data())
@settings(max_examples=60, deadline=None)
def test_compaction_keeps_the_tasks_of_the_last_write(writes: list[tuple[str, int]], data: st.DataObject) -> None:
    """Compaction removes any prefix's overwritten records; the last write of each connector is complete."""
    log: list[Record] = [connector("a"), connector("b")]
    for number, (name, count) in enumerate(writes):
        log += tasks(name, *({"write": str(number), "task": str(i)} for i in range(count)))
        log.append(commit(name, count))
    dirty_from = data.draw(st.integers(0, len(log)))
    last = {key: offset for offset, (key, _) in enumerate(log)}
    kept = [record for offset, record in enumerate(log) if offset >= dirty_from or last[record[0]] == offset]
    whole, compacted = applied(log), applied(kept)
    for name in "ab":
        assert compacted.task_configs(name) == whole.task_configs(name)
        assert not compacted.is_inconsistent(name)


@given(_writes, st.integers(0, 40))
@settings(max_examples=60, deadline=None)
def test_tasks_of_two_writes_never_run_together(writes: list[tuple[str, int]], cut: int) -> None:
    """The leader may die after any record: another one writes again from the beginning."""
    log: list[Record] = [connector("a"), connector("b")]
    for number, (name, count) in enumerate(writes):
        records = [*tasks(name, *({"write": str(number)} for _ in range(count))), commit(name, count)]
        log += records[: cut % (len(records) + 1)]
        state = applied(log)
        for each in "ab":
            assert len({config["write"] for config in state.task_configs(each)}) <= 1

"""The computations of commands on the responses of an admin client: lag, facts about topics, hanging transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.clients.admin import PartialFailure
from ottla.clients.admin.model import (
    GroupDescription,
    GroupMember,
    GroupOffset,
    GroupState,
    GroupType,
    LogDirectory,
    OffsetAt,
    OffsetSpec,
    PartitionDescription,
    ProducerDescription,
    Reassignment,
    ReplicaDescription,
    ShareGroupOffset,
    TopicDescription,
)
from ottla.clients.errors import (
    ClientError,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
    UnsupportedByBroker,
)
from ottla.common.failure import Failure
from ottla.common.ids import TopicPartition
from ottla.tools.admin.cluster_facts import _trouble, reassignment_rows
from ottla.tools.admin.group_lag import read_lag
from ottla.tools.admin.hanging import check_not_copied, hanging
from ottla.tools.admin.leaderless import cannot_lead, way_out
from ottla.tools.admin.outcomes import outcomes
from ottla.tools.admin.replicas import finished_moves, replicas_of
from ottla.tools.admin.topic_facts import facts_of

P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))


def failing(results: Mapping[Any, Any], errors: Mapping[Any, ClientError]) -> PartialFailure:
    return PartialFailure.of(errors, results)


def raising(error: Exception) -> Any:
    def call(*_: Any, **__: Any) -> Any:
        raise error

    return call


# -- outcomes ----------------------------------------------------------------------------------------------------


def test_call_without_errors_has_results_only() -> None:
    assert outcomes(lambda names, *, dry: (names, dry), ["a"], dry=True) == ((["a"], True), {})


def test_partial_failure_becomes_results_and_errors() -> None:
    error = UnknownTopicOrPartition("no such topic")
    assert outcomes(raising(failing({"a": 1}, {"b": error}))) == ({"a": 1}, {"b": error})


def test_failure_of_the_whole_call_is_raised() -> None:
    with pytest.raises(UnsupportedByBroker):
        outcomes(raising(UnsupportedByBroker("too old")))


# -- lag ---------------------------------------------------------------------------------------------------------


def group_admin(
    committed: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    assigned: Sequence[TopicPartition] = (),
    shares: Mapping[TopicPartition, ShareGroupOffset] | None = None,
) -> Any:
    member = GroupMember("member-1", None, "billing", "/10.0.0.1", ("orders",), tuple(assigned))
    kind = GroupType.CLASSIC if shares is None else GroupType.SHARE
    described = GroupDescription("g", GroupState.STABLE, kind, "consumer", "range", (member,))

    def list_offsets(specs: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        assert set(specs.values()) == {OffsetSpec.LATEST}
        found = {tp: OffsetAt(ends[tp], -1, 0) for tp in specs if tp in ends}
        deleted = {tp: UnknownTopicOrPartition("deleted") for tp in specs if tp not in ends}
        if deleted:
            raise failing(found, deleted)
        return found

    return SimpleNamespace(
        describe_group=lambda _: described,
        list_group_offsets=lambda _: {tp: GroupOffset(offset) for tp, offset in committed.items()},
        list_share_group_offsets=lambda _: shares,
        list_offsets=list_offsets,
    )


def test_lag_is_the_distance_from_the_committed_offset_to_the_end() -> None:
    lag = read_lag(group_admin({P0: 10, P1: 5}, {P0: 12, P1: 5}, assigned=[P0]), "g")
    assert [(row["partition"], row["lag"], row["client"]) for row in lag.rows] == [(0, 2, "billing"), (1, 0, None)]
    assert lag.rows[0]["host"] == "10.0.0.1"
    assert lag.summary()["lag"] == 2


def test_partition_of_a_member_without_committed_offset_has_no_lag() -> None:
    (row,) = read_lag(group_admin({}, {P0: 12}, assigned=[P0]), "g").rows
    assert (row["committed"], row["end"], row["lag"]) == (None, 12, None)


def test_partition_of_a_deleted_topic_has_no_end_and_no_lag() -> None:
    rows = read_lag(group_admin({P0: 10, P1: 5}, {P0: 12}), "g").rows
    assert [(row["end"], row["lag"]) for row in rows] == [(12, 2), (None, None)]


def test_lag_of_a_share_group_is_what_the_broker_reports() -> None:
    shares = {P0: ShareGroupOffset(10, lag=1), P1: ShareGroupOffset(3)}
    lag = read_lag(group_admin({}, {P0: 20, P1: 5}, assigned=[P0], shares=shares), "g")
    assert [(row["committed"], row["lag"], row["member"]) for row in lag.rows] == [(10, 1, None), (3, 2, None)]


OFFSETS = st.dictionaries(st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 3)), st.integers(0, 99))


@given(committed=OFFSETS, ends=OFFSETS, assigned=st.frozensets(st.sampled_from([P0, P1, P2])))
def test_lag_is_never_negative_and_adds_up(
    committed: dict[TopicPartition, int], ends: dict[TopicPartition, int], assigned: frozenset[TopicPartition]
) -> None:
    lag = read_lag(group_admin(committed, ends, sorted(assigned)), "g")
    assert [(row["topic"], row["partition"]) for row in lag.rows] == sorted({*committed, *assigned})
    known = [row["lag"] for row in lag.rows if row["lag"] is not None]
    assert all(each >= 0 for each in known)
    assert lag.summary()["lag"] == sum(known)
    assert len(known) == len(committed.keys() & ends.keys())


# -- topics ------------------------------------------------------------------------------------------------------


def described(leaders: Sequence[int | None]) -> TopicDescription:
    partitions = [PartitionDescription(n, leader, 0, (1, 2), (1,), ()) for n, leader in enumerate(leaders)]
    return TopicDescription("orders", "id", is_internal=False, partitions=tuple(partitions))


def topic_admin(leaders: Sequence[int | None], **calls: Any) -> Any:
    def list_offsets(specs: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        return {tp: OffsetAt(4 if spec == OffsetSpec.EARLIEST else 10, -1, 0) for tp, spec in specs.items()}

    replica = ReplicaDescription(100, 0, is_future=False)
    directories = {
        1: [LogDirectory("/a", -1, -1, {P0: replica, P1: ReplicaDescription(7, 0, is_future=True)})],
        2: [LogDirectory("/b", -1, -1, {P0: replica})],
    }
    methods = {
        "describe_topics": lambda _: {"orders": described(leaders)},
        "list_offsets": list_offsets,
        "describe_configs": lambda _: {},
        "describe_cluster": lambda: SimpleNamespace(brokers=()),
        "describe_log_dirs": lambda **_: directories,
    }
    return SimpleNamespace(**methods | calls)


def test_facts_of_a_topic_join_offsets_and_sizes() -> None:
    (facts,) = facts_of(topic_admin([1]), ["orders"])
    (row,) = facts.partitions
    assert (row["earliest"], row["latest"], row["records"]) == (4, 10, 6)
    assert (row["size"], row["size_of_replicas"]) == (100, 200)
    summary = facts.summary()
    assert (summary["records"], summary["under_replicated"], summary["without_leader"]) == (6, 1, 0)


def test_size_of_a_replica_that_moves_between_directories_is_not_counted() -> None:
    (facts,) = facts_of(topic_admin([1, 1]), ["orders"])
    assert facts.partitions[1]["size_of_replicas"] is None
    assert facts.summary()["size"] is None


def test_sum_is_unknown_if_a_partition_has_no_leader() -> None:
    (facts,) = facts_of(topic_admin([1, None]), ["orders"])
    assert facts.partitions[1]["records"] is None
    assert facts.summary()["records"] is None
    assert facts.summary()["without_leader"] == 1


def test_apis_that_a_broker_lacks_leave_their_facts_unknown() -> None:
    lacks = raising(UnsupportedByBroker("too old"))
    (facts,) = facts_of(topic_admin([1], describe_log_dirs=lacks, describe_configs=lacks), ["orders"])
    assert facts.summary()["size"] is None
    assert facts.summary()["cleanup_policy"] is None
    assert facts.summary()["records"] == 6


# -- replicas and moves ------------------------------------------------------------------------------------------


def moving_admin(moving: Mapping[TopicPartition, Reassignment], replicas: Sequence[Sequence[int]]) -> Any:
    partitions = [PartitionDescription(n, 1, 0, tuple(nodes), tuple(nodes), ()) for n, nodes in enumerate(replicas)]
    topic = TopicDescription("orders", "id", is_internal=False, partitions=tuple(partitions))
    return SimpleNamespace(
        list_partition_reassignments=lambda: moving, describe_topics=lambda _: {"orders": topic}, list_topics=list
    )


def test_replicas_of_a_moving_partition_are_its_future_replicas() -> None:
    moving = {P0: Reassignment((3, 1, 2), adding=(3,), removing=(1,))}
    assert replicas_of(moving_admin(moving, [[3, 1, 2], [1, 2]]), ["orders"]) == {P0: [3, 2], P1: [1, 2]}


def test_move_is_complete_when_the_brokers_show_the_new_replicas() -> None:
    wanted = {P0: [3, 2], P1: [3, 2], P2: [2, 3]}
    moving = {P0: Reassignment((3, 1, 2), adding=(3,), removing=(1,))}
    # P1 is not moving yet, as far as this broker knows; the order of P2's replicas does not matter.
    assert finished_moves(moving_admin(moving, [[3, 2], [1, 2], [3, 2]]), wanted) == [P2]


def test_moving_partitions_are_rows_in_order() -> None:
    move = Reassignment((1, 2), adding=(2,), removing=(1,))
    assert [row["partition"] for row in reassignment_rows({P2: move, P0: move})] == [0, 2]


@pytest.mark.parametrize(
    ("leader", "isr", "replicas", "least", "state"),
    [
        (None, (), (1, 2, 3), 2, "offline"),
        (1, (1,), (1, 2, 3), 2, "under min ISR"),
        (1, (1, 2), (1, 2, 3), 2, "at min ISR"),
        (1, (1, 2), (1, 2, 3), 1, "under-replicated"),
        (1, (1, 2, 3), (1, 2, 3), 2, None),
        (1, (1,), (1,), 1, None),
    ],
)
def test_state_of_a_partition_in_trouble(
    leader: int | None, isr: tuple[int, ...], replicas: tuple[int, ...], least: int, state: str | None
) -> None:
    assert _trouble(PartitionDescription(0, leader, 0, replicas, isr, ()), least) == state


def in_trouble(leader: int | None, isr: tuple[int, ...], **fields: Any) -> PartitionDescription:
    return PartitionDescription(0, leader, 0, (1, 2, 3), isr, fields.pop("offline", ()), **fields)


@pytest.mark.parametrize(
    ("partition", "stuck", "step"),
    [
        (in_trouble(1, (1, 2)), [], None),
        (in_trouble(1, (1, 2), offline=(3,)), [], None),
        (
            in_trouble(1, (1, 2), offline=(2,)),
            [2],
            "restore the log directory of broker 2, which cannot lead, and restart it",
        ),
        (in_trouble(None, (3,), offline=(3,)), [], "start broker 3"),
        (in_trouble(None, (), eligible_leader_replicas=(3, 4)), [], "start broker 3 or 4"),
        (in_trouble(None, (), last_known_elr=(3,)), [], "start broker 3"),
        (in_trouble(None, (1, 3), offline=(1, 3)), [1], "start broker 3"),
        (in_trouble(None, (1,), offline=(1,)), [1], "restore the log directory of broker 1, or give up its records"),
        (in_trouble(None, ()), [], "no replica has every acknowledged record"),
        (in_trouble(None, (1,)), [], "wait for the election of broker 1"),
    ],
)
def test_next_step_for_a_partition_without_a_leader(
    partition: PartitionDescription, stuck: list[int], step: str | None
) -> None:
    """Brokers 1 and 2 are up."""
    assert cannot_lead(partition, {1, 2}) == stuck
    found = way_out(partition, {1, 2})
    assert found == step if step is None else str(found).startswith(step)
    if stuck and partition.leader is not None:
        assert _trouble(partition, 1, stuck) == "cannot lead"


# -- transactions ------------------------------------------------------------------------------------------------


def open_row(partition: TopicPartition, producer_id: int, start: int | None = 5) -> dict[str, Any]:
    return {**partition._asdict(), "producer_id": producer_id, "start_offset": start}


def transaction_admin(
    known: Mapping[int, Sequence[TopicPartition]],
    still_open: Mapping[TopicPartition, int],
    *,
    lost: bool = False,
    state: str = "",
) -> Any:
    """`known`: the partitions of the transaction of a producer id; `lost`: no coordinator describes the ids.

    `state`: of the topics in the mirror dr.
    """

    def describe(ids: Any) -> dict[str, Any]:
        found = {f"id-{each}": SimpleNamespace(producer_id=each, partitions=known[each]) for each in known}
        if lost:
            raise failing({}, {each: TransactionalIdNotFound("unknown") for each in ids})
        return found

    def producers(partitions: Any) -> dict[TopicPartition, list[ProducerDescription]]:
        return {
            tp: [ProducerDescription(producer_id, 0, 0, 0, 5)]
            for tp, producer_id in still_open.items()
            if tp in partitions
        }

    settings = {"ottla.mirror": SimpleNamespace(value="dr"), "ottla.mirror.state": SimpleNamespace(value=state)}
    return SimpleNamespace(
        describe_configs=lambda topics, names: dict.fromkeys(topics, settings if state else {}),
        list_transactions=lambda producer_ids: [
            SimpleNamespace(producer_id=each, transactional_id=f"id-{each}") for each in known if each in producer_ids
        ],
        describe_transactions=describe,
        describe_producers=producers,
    )


def test_transaction_of_an_unknown_producer_hangs() -> None:
    (row,) = hanging(transaction_admin({}, {P0: 7}), [open_row(P0, 7)])
    assert (row["producer_id"], row["transactional_id"]) == (7, None)


def test_partition_that_is_not_in_its_producers_transaction_hangs() -> None:
    (row,) = hanging(transaction_admin({7: [P1]}, {P0: 7, P1: 7}), [open_row(P0, 7), open_row(P1, 7)])
    assert (row["partition"], row["transactional_id"]) == (0, "id-7")


def test_transaction_that_ended_meanwhile_does_not_hang() -> None:
    assert hanging(transaction_admin({}, {}), [open_row(P0, 7)]) == []


@pytest.mark.parametrize(("state", "count"), [("MIRRORING", 0), ("STOPPED", 1)])
def test_transaction_in_a_copy_does_not_hang(state: str, count: int) -> None:
    """Its markers are copied from the source; this cluster may have a producer with its id."""
    admin = transaction_admin({7: [P1]}, {P0: 7}, state=state)
    assert len(hanging(admin, [open_row(P0, 7)])) == count
    if state == "MIRRORING":
        with pytest.raises(Failure, match="mirror dr copies it, with its transactions"):
            check_not_copied(admin, "orders")
    else:
        check_not_copied(admin, "orders")


def test_id_that_expired_meanwhile_hangs() -> None:
    assert len(hanging(transaction_admin({7: [P0]}, {P0: 7}, lost=True), [open_row(P0, 7)])) == 1

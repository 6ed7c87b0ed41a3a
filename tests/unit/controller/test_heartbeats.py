"""Several brokers: registrations and their epochs, heartbeats, sessions that expire, controlled shutdown."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import finish
from ottla.controller import Outcome
from ottla.metadata import features
from ottla.metadata.image import NO_LEADER, PartitionImage
from ottla.protocol import metadata_records as m
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
)

from .support import Cluster, registration

TIMEOUT_MS = 9_000


class Brokers(Cluster):
    """Brokers 1 to `count` that were registered as fenced and then unfenced by a heartbeat."""

    def __init__(self, count: int = 3) -> None:
        super().__init__(0)
        self.now_ms = 1_000_000
        for broker_id in range(1, count + 1):
            self.start(broker_id)
            assert not self.beat(broker_id).is_fenced

    def start(self, broker_id: int, incarnation: int = 1, **changes: Any) -> int:
        request = registration(broker_id, None, incarnation)
        for name, value in changes.items():
            setattr(request, name, value)
        return self.send(request)

    def send(self, request: BrokerRegistrationRequest) -> int:
        response = self.do(self.controller.register_broker(request, now_ms=self.now_ms))
        self.epochs[request.broker_id] = response.broker_epoch
        return response.broker_epoch

    def beat(self, broker_id: int, **wishes: Any) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(broker_id, self.epochs[broker_id], self.offset)
        for name, value in wishes.items():
            setattr(request, name, value)
        return self.do(self.controller.heartbeat(request, self.now_ms))

    def expire(self) -> bool:
        return self.do(self.controller.fence_one_expired_broker(self.now_ms))

    def create(self, *replicas: int) -> None:
        topic = CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(0, list(replicas))])
        assert self.do(self.controller.create_topics(CreateTopicsRequest(topics=[topic]))).topics[0].error_code == 0

    @property
    def partition(self) -> PartitionImage:
        return self.controller.image.topics_by_name["t"].partitions[0]

    def fenced(self) -> list[int]:
        return [broker.broker_id for broker in self.controller.image.brokers.values() if broker.fenced]


# -- registration ----------------------------------------------------------------------------------------------------


def test_broker_starts_fenced_and_its_epoch_is_the_offset_of_its_registration() -> None:
    cluster = Brokers(2)
    offset = cluster.offset
    assert cluster.start(3) == offset
    assert cluster.fenced() == [3]
    assert cluster.controller.image.brokers[3].epoch == offset


def test_second_broker_with_a_live_id_is_rejected_until_the_session_expires() -> None:
    cluster = Brokers(2)
    image = cluster.controller.image
    with pytest.raises(KafkaError) as error:
        cluster.start(1, incarnation=2)
    assert error.value.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert cluster.controller.image is image
    cluster.now_ms += TIMEOUT_MS + 1
    before = cluster.epochs[1]
    assert cluster.start(1, incarnation=2) > before
    assert cluster.fenced() == [1]


def test_same_incarnation_amends_its_registration_and_retains_epoch_and_fencing() -> None:
    cluster = Brokers(2)
    epoch = cluster.epochs[1]
    assert cluster.start(1, rack="r2") == epoch
    broker = cluster.controller.image.brokers[1]
    assert (broker.rack, broker.fenced, broker.epoch) == ("r2", False, epoch)


def test_broker_that_shut_down_returns_before_its_session_expires() -> None:
    cluster = Brokers(2)
    cluster.create(1, 2)
    cluster.beat(1, want_shut_down=True)
    assert cluster.start(1, incarnation=2, previous_broker_epoch=cluster.epochs[1]) > 0


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [bytes(16)]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [b"d" * 16] * 2}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [bytes([1, 7]) * 8]}, ErrorCode.INVALID_REGISTRATION),
        ({"features": []}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_invalid_registration_changes_nothing(changes: dict[str, Any], code: ErrorCode) -> None:
    cluster = Brokers(2)
    image = cluster.controller.image
    with pytest.raises(KafkaError) as error:
        cluster.start(3, **changes)
    assert error.value.code == code
    assert cluster.controller.image is image


@pytest.mark.parametrize(("clean", "eligible"), [(True, (2, 1)), (False, (2,))])
def test_only_a_clean_restart_stays_eligible_to_lead(clean: bool, eligible: tuple[int, ...]) -> None:
    cluster = Brokers(2)
    cluster.create(1, 2)
    cluster.do(Outcome([m.ConfigRecord(2, "t", "min.insync.replicas", "2")], None))
    cluster.do(cluster.controller.fence_broker(2))
    cluster.now_ms += TIMEOUT_MS + 1
    cluster.start(1, incarnation=2, previous_broker_epoch=cluster.epochs[1] if clean else -1)
    partition = cluster.partition
    assert (partition.isr, partition.leader, partition.eligible_leader_replicas) == ((), NO_LEADER, eligible)
    assert partition.last_known_elr == (1,)


# -- heartbeats ------------------------------------------------------------------------------------------------------


def test_broker_is_unfenced_only_after_it_has_read_its_registration() -> None:
    cluster = Brokers(1)
    epoch = cluster.start(2)
    behind = cluster.beat(2, current_metadata_offset=epoch - 1)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    wants_fence = cluster.beat(2, want_fence=True)
    assert (wants_fence.is_caught_up, wants_fence.is_fenced) == (True, True)
    assert not cluster.beat(2).is_fenced
    assert cluster.fenced() == []


def test_heartbeat_with_an_old_or_unknown_epoch_changes_nothing() -> None:
    cluster = Brokers(2)
    image = cluster.controller.image
    for broker_id, epoch in ((1, cluster.epochs[1] - 1), (1, cluster.epochs[1] + 1), (9, 0)):
        with pytest.raises(KafkaError) as error:
            finish(cluster.controller.heartbeat(BrokerHeartbeatRequest(broker_id, epoch, 10**6), cluster.now_ms))
        assert error.value.code == ErrorCode.STALE_BROKER_EPOCH
    assert cluster.controller.image is image


def test_expired_brokers_are_fenced_one_per_call_but_not_the_controllers_own_broker() -> None:
    cluster = Brokers(4)
    cluster.create(2, 3, 4)
    cluster.now_ms += TIMEOUT_MS
    cluster.beat(4)
    assert not cluster.expire(), "the timeout has passed, but is not exceeded"
    cluster.now_ms += 1
    assert cluster.expire()
    assert cluster.fenced() == [2]
    assert (cluster.partition.leader, cluster.partition.isr) == (3, (3, 4))
    assert cluster.expire()
    assert not cluster.expire()
    assert cluster.fenced() == [2, 3]
    assert (cluster.partition.leader, cluster.partition.isr, cluster.partition.leader_epoch) == (4, (4,), 2)


def test_expired_broker_is_fenced_again_if_the_record_was_not_appended() -> None:
    cluster = Brokers(2)
    cluster.now_ms += TIMEOUT_MS + 1
    first = finish(cluster.controller.fence_one_expired_broker(cluster.now_ms))
    assert finish(cluster.controller.fence_one_expired_broker(cluster.now_ms)).records == first.records


def test_new_active_controller_waits_a_full_session_before_it_fences() -> None:
    cluster = Brokers(2)
    cluster.now_ms += 10 * TIMEOUT_MS
    cluster.controller.begin_sessions(cluster.now_ms)
    assert not cluster.expire()
    cluster.now_ms += TIMEOUT_MS + 1
    assert cluster.expire()


def test_controlled_shutdown_waits_until_the_active_brokers_know_the_new_leaders() -> None:
    cluster = Brokers(3)
    cluster.create(1, 2, 3)
    first = cluster.beat(1, want_shut_down=True)
    assert (first.should_shut_down, first.is_fenced) == (False, False)
    assert (cluster.partition.leader, cluster.partition.isr) == (2, (2, 3))
    assert not cluster.beat(1, want_shut_down=True).should_shut_down, "brokers 2 and 3 may still name it as the leader"
    cluster.beat(2)
    assert not cluster.beat(1, want_shut_down=True).should_shut_down
    cluster.beat(3)
    last = cluster.beat(1, want_shut_down=True)
    assert (last.should_shut_down, last.is_fenced) == (True, True)
    assert cluster.fenced() == [1]


@pytest.mark.parametrize(("wishes", "stops"), [({"want_shut_down": True}, True), ({"want_fence": True}, False)])
def test_broker_without_leaderships_stops_or_is_fenced_at_once(wishes: dict[str, bool], stops: bool) -> None:
    cluster = Brokers(2)
    response = cluster.beat(2, **wishes)
    assert (response.should_shut_down, response.is_fenced) == (stops, True)
    assert cluster.fenced() == [2]


@pytest.mark.parametrize("leads", [True, False])
def test_late_heartbeat_does_not_unfence_a_broker_that_shut_down(leads: bool) -> None:
    cluster = Brokers()
    cluster.create(1 if leads else 2, 3)
    for _ in range(3):
        for other in (2, 3):
            cluster.beat(other)
        response = cluster.beat(1, want_shut_down=True)
    assert response.should_shut_down
    assert cluster.beat(1).is_fenced, "this heartbeat was delayed by the network"
    assert cluster.controller.image.brokers[1].fenced
    cluster.now_ms += TIMEOUT_MS + 1
    cluster.start(1, incarnation=2)
    assert not cluster.beat(1).is_fenced, "the next process serves"


def test_new_active_controller_does_not_unfence_a_broker_that_shut_down() -> None:
    cluster = Brokers()
    cluster.create(2, 3)
    cluster.beat(2, want_shut_down=True)
    cluster.controller.begin_sessions(cluster.now_ms)
    cluster.now_ms += TIMEOUT_MS + 1
    while cluster.expire():
        pass
    assert cluster.fenced() == [2, 3]
    assert cluster.beat(2).is_fenced
    assert not cluster.beat(3).is_fenced


def test_only_replica_loses_its_leader_in_a_shutdown_and_leads_after_the_restart() -> None:
    cluster = Brokers(2)
    cluster.create(1)
    cluster.beat(1, want_shut_down=True)
    cluster.beat(2)
    cluster.beat(1, want_shut_down=True)
    cluster.beat(2)
    assert cluster.beat(1, want_shut_down=True).should_shut_down
    assert (cluster.partition.leader, cluster.partition.isr) == (NO_LEADER, ())
    assert cluster.partition.eligible_leader_replicas == (1,)
    cluster.start(1, incarnation=2)
    cluster.beat(1)
    assert (cluster.partition.leader, cluster.partition.isr) == (1, (1,))


def test_failed_directory_costs_the_leaderships_of_its_partitions() -> None:
    cluster = Brokers(1)
    directories = [bytes([9, each]) * 8 for each in (1, 2)]
    cluster.start(2, log_dirs=directories)
    cluster.beat(2)
    cluster.create(2, 1)
    topic_id = cluster.controller.image.topics_by_name["t"].topic_id
    named = [directories[0], bytes([1, 7]) * 8]
    cluster.do(Outcome([m.PartitionChangeRecord(partition_id=0, topic_id=topic_id, directories=named)], None))
    cluster.beat(2, offline_log_dirs=[directories[1]])
    assert cluster.partition.leader == 2
    cluster.beat(2, offline_log_dirs=directories)
    assert (cluster.partition.leader, cluster.partition.isr) == (1, (1,))


def test_new_topic_waits_for_a_broker_that_has_stopped_but_not_for_one_that_stops() -> None:
    cluster = Brokers(3)
    cluster.create(3, 1)

    def place() -> CreatableTopicResult:
        request = CreateTopicsRequest(topics=[CreatableTopic("all", 1, 3)])
        return cluster.do(cluster.controller.create_topics(request)).topics[0]

    assert not cluster.beat(3, want_shut_down=True).should_shut_down
    refused = place()
    assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "only 2 broker(s) are registered" in (refused.error_message or "")
    for broker_id in (1, 2):
        cluster.beat(broker_id)
    assert cluster.beat(3, want_shut_down=True).should_shut_down
    assert place().error_code == 0
    partition = cluster.controller.image.topics_by_name["all"].partitions[0]
    assert (sorted(partition.replicas), sorted(partition.isr)) == ([1, 2, 3], [1, 2])


def test_broker_whose_directories_are_all_cordoned_gets_no_replicas() -> None:
    cluster = Brokers(2)
    directory = cluster.controller.image.brokers[2].directories[0]
    cluster.beat(2, cordoned_log_dirs=[directory])
    assert cluster.controller.image.brokers[2].is_cordoned
    topics = [
        CreatableTopic("assigned", -1, -1, [CreatableReplicaAssignment(0, [1, 2])]),
        CreatableTopic("placed", 1, 2),
        CreatableTopic("small", 4, 1),
    ]
    assigned, placed, small = cluster.do(cluster.controller.create_topics(CreateTopicsRequest(topics=topics))).topics
    assert assigned.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "includes broker 2, but all its log directories are cordoned" in (assigned.error_message or "")
    assert placed.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert small.error_code == 0
    cluster.beat(2, cordoned_log_dirs=[])
    request = CreateTopicsRequest(topics=topics[:1])
    assert cluster.do(cluster.controller.create_topics(request)).topics[0].error_code == 0


# -- invariants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eligible_level", [0, 1])
@pytest.mark.parametrize("seed", range(8))
def test_random_operations_retain_the_invariants(seed: int, eligible_level: int) -> None:
    random = Random(seed)
    cluster = Brokers(4)
    level = m.FeatureLevelRecord(name=features.ELIGIBLE_LEADER_REPLICAS_VERSION, feature_level=eligible_level)
    cluster.do(Outcome([level], None))
    cluster.create(*random.sample(range(1, 5), 3))
    incarnations = dict.fromkeys(range(1, 5), 1)
    for _ in range(150):
        before, broker_id = cluster.partition, random.randrange(1, 5)
        action = random.randrange(5)
        cluster.now_ms += random.choice((100, 5_000))
        if action == 0:
            cluster.beat(broker_id, want_shut_down=random.random() < 0.3)
        elif action == 1:
            cluster.expire()
        elif action == 2:
            incarnations[broker_id] += 1
            try:
                cluster.start(broker_id, incarnations[broker_id])
            except KafkaError as error:
                assert error.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION  # noqa: PT017 - one of two legal outcomes
        elif action == 3:
            cluster.do(cluster.controller.fence_broker(broker_id))
        else:
            cluster.beat(broker_id)
        check(cluster, before, cluster.partition)


def check(cluster: Brokers, before: PartitionImage, after: PartitionImage) -> None:
    brokers = cluster.controller.image.brokers
    candidates = {*after.isr, *after.eligible_leader_replicas, *after.last_known_elr}
    assert candidates
    assert set(after.isr) <= set(after.replicas)
    assert after.leader == NO_LEADER or (after.leader in after.isr and not brokers[after.leader].fenced)
    assert after.leader_epoch >= before.leader_epoch
    assert after.partition_epoch > before.partition_epoch or after == before
    assert after.leader_epoch > before.leader_epoch or after.leader == before.leader
    if candidates.isdisjoint({*before.isr, *before.eligible_leader_replicas, *before.last_known_elr}):
        raise AssertionError(f"no replica of {before} can lead {after}: records may be lost")
    if after.isr and before.isr and set(before.isr).isdisjoint(after.isr):
        raise AssertionError(f"no replica of ISR {before.isr} is in {after.isr}: records may be lost")


def test_fencing_yields_between_partitions_so_that_other_requests_are_served() -> None:
    cluster = Brokers(3)
    topic = CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(index, [2, 1, 3]) for index in range(500)])
    cluster.do(cluster.controller.create_topics(CreateTopicsRequest(topics=[topic])))
    assert sum(1 for _ in cluster.controller.fence_broker(2)) > 500
    cluster.do(cluster.controller.fence_broker(2))
    assert {each.leader for each in cluster.controller.image.topics_by_name["t"].partitions.values()} == {1}

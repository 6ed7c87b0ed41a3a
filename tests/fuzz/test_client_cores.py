"""Clients' cores with responses that no correct broker sends: any response in any state, at any time.

A response may contain anything that its format can express. A core may report an error to the program, refuse to be a
member, or ignore the response. An assertion, a missing key or another Python exception is a defect: it would end the
client's event loop.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pytest

from ottla.clients.admin import access, cluster, configs, groups, share_groups, tokens, topics, transactions
from ottla.clients.admin.access_model import Acl, AclFilter, AclOperation, AclResource, QuotaEntity, ScramDeletion
from ottla.clients.admin.core import Call, Progress
from ottla.clients.admin.model import ConfigResource
from ottla.clients.cluster import Backoff, ClusterView
from ottla.clients.consumer.core import ConsumerCore
from ottla.clients.consumer.effects import Effect, EffectId, Refresh, Send
from ottla.clients.consumer.group_protocol import assignment_bytes, subscription_bytes
from ottla.clients.consumer.settings import read_settings
from ottla.clients.errors import BrokerUnavailable, ClientError, ConnectionLost, RequestTimedOut, error_for
from ottla.clients.offsets import OffsetAndMetadata
from ottla.clients.producer._encoder import Delivery
from ottla.clients.producer.core import ProducerCore
from ottla.clients.producer.effects import AskCoordinator, Finished, Outcome, RequestMetadata, RequestProducerId, Wake
from ottla.clients.producer.requests import outcomes_of
from ottla.clients.producer.settings import ProducerSettings
from ottla.clients.producer.transaction_requests import OffsetsOfGroup
from ottla.clients.share.core import ShareCore
from ottla.clients.share.settings import read_share_settings
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.protocol import registry
from ottla.protocol.message import Message
from ottla.protocol.messages.init_producer_id import InitProducerIdResponse
from ottla.protocol.messages.metadata import MetadataResponse
from ottla.protocol.messages.produce import ProduceResponse
from ottla.protocol.plans import Plan, plans_of
from ottla.records import encode_batch
from tests.unit.clients.metadata import metadata, topic_row

SEEDS = range(int(os.environ.get("OTTLA_SEEDS", "40")))
STEPS = 200
TOPICS = ("t", "u")
CODES = [int(code) for code in ErrorCode]
LIKELY_CODES = [0] * 12 + [
    ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.NOT_COORDINATOR, ErrorCode.MEMBER_ID_REQUIRED,
]  # fmt: skip
LIKELY: dict[str, tuple[Any, ...]] = {
    "member_id": ("me",),
    "leader": ("me", "other"),
    "skip_assignment": (False,),
    "generation_id": (1, 2),
    "member_epoch": (1, 2, 3),
    "protocol_name": ("range", "sticky", "cooperative-sticky"),
    "topic_id": tuple(name.encode().ljust(16, b"\0") for name in TOPICS),
    "partition_index": (0, 1, 2),
}
LOST = (ConnectionLost("lost"), RequestTimedOut("late"), BrokerUnavailable("absent"))
BATCH = encode_batch([(0, None, b"x", [])] * 3, base_offset=0, leader_epoch=0)


class Broker:
    """Makes up responses; no number is larger than `largest`, and fields in `likely` mostly have one of its values."""

    def __init__(
        self, seed: int, largest: int = 2**63, likely: Mapping[str, Sequence[Any]] = MappingProxyType(LIKELY)
    ) -> None:
        self.largest, self.likely = largest, likely
        self.random = random.Random(seed)
        self.ids = [name.encode().ljust(16, b"\0") for name in TOPICS] + [bytes(16), b"?" * 16]

    def response(self, request: Message) -> Message | ClientError:
        """Any response to the request, or a lost one."""
        if self.random.random() < 0.1:
            return self.random.choice([*LOST, error_for(self.random.choice(CODES))])
        return self.fill(registry.response_class(request.API_KEY))

    def metadata(self) -> MetadataResponse:
        """Mostly correct metadata, since the cores need topics to have something to do."""
        if self.random.random() < 0.3:
            filled: Any = self.fill(MetadataResponse)
            return filled
        rows = [topic_row(name, leaders=[self.random.choice((-1, 1, 2)) for _ in range(3)]) for name in TOPICS]
        return metadata(*self.random.sample(rows, self.random.randint(1, 2)))

    def fill(self, cls: type[Any]) -> Any:
        """A message with anything in its fields."""
        values = [self._value(plan) for plan in plans_of(cls)]
        return cls(*values)

    def _value(self, plan: Plan) -> Any:
        if plan.nullable[1] >= 0 and self.random.random() < 0.15:
            return None
        if plan.is_list and plan.name in self.likely:
            return [self._one(plan)]
        if plan.is_list:
            return [self._one(plan) for _ in range(self.random.choice((0, 1, 1, 2, 3)))]
        return self._one(plan)

    def _one(self, plan: Plan) -> Any:
        choose = self.random.choice
        if plan.struct is not None:
            return self.fill(plan.struct)
        if plan.name.endswith("error_code"):
            return choose(LIKELY_CODES) if self.random.random() < 0.9 else choose(CODES)
        if plan.name in self.likely and plan.struct is None and self.random.random() < 0.9:
            return choose(self.likely[plan.name])
        if plan.kind == "bool":
            return choose((True, False))
        if plan.kind == "str":
            return choose(("me", "me", "other", "", *TOPICS, "range", "sticky", "cooperative-sticky", "\u00e4" * 300))
        if plan.kind == "Uuid":
            return choose(self.ids)
        if plan.kind in ("bytes", "Records"):
            return self._bytes()
        if plan.kind == "Float64":
            return choose((0.0, -1.0, 1e300))
        bits = int(plan.kind.removeprefix("U").removeprefix("Int"))
        largest = min(self.largest, 2 ** (bits - 1) - 1)
        return choose((0, 0, 1, 1, 2, 3, 5, -1, -2, largest, -largest - 1))

    def _bytes(self) -> bytes:
        partitions = [
            TopicPartition(self.random.choice(TOPICS), self.random.choice((0, 1, 2, 7, -1))) for _ in range(2)
        ]
        topics = frozenset(self.random.sample(TOPICS, self.random.randint(0, 2)))
        whole = self.random.choice((
            b"", bytes(BATCH), bytes(BATCH) * 2, assignment_bytes(partitions),
            subscription_bytes(topics, partitions, user_data=self.random.randbytes(4), generation=1, rack=None),
        ))  # fmt: skip
        if self.random.random() < 0.3 and whole:
            changed = bytearray(whole)
            changed[self.random.randrange(len(changed))] = self.random.randrange(256)
            whole = bytes(changed[: self.random.randint(1, len(changed))])
        return whole


class Driver:
    """A core whose effects are answered in any order, some of them never."""

    def __init__(self, core: Any, view: ClusterView, broker: Broker) -> None:
        self.core, self.view, self.broker = core, view, broker
        self.random = broker.random
        self.now_ms = 0.0
        self.waiting: dict[EffectId, Effect] = {}

    def advance(self) -> None:
        for effect in self.core.advance(self.now_ms):
            if isinstance(effect, Send | Refresh):
                self.waiting[effect.id] = effect

    def answer(self) -> None:
        if not self.waiting:
            return
        effect = self.waiting.pop(self.random.choice(list(self.waiting)))
        if isinstance(effect, Refresh):
            self.view.apply(self.broker.metadata(), self.now_ms)
            outcome: Any = self.random.choice((None, None, None, *LOST))
        else:
            assert isinstance(effect, Send)
            outcome = self.broker.response(effect.request)
        self.core.complete(effect.id, outcome, self.now_ms)

    def pass_time(self) -> None:
        self.now_ms += self.random.choice((0, 1, 50, 3_000, 30_000, 400_000))

    def run(self, *actions: Callable[[], object]) -> None:
        for _ in range(STEPS):
            action = self.random.choice(
                (self.advance, self.advance, self.answer, self.answer, self.pass_time, *actions)
            )
            try:
                action()
            except ClientError:  # the program gets it
                continue
            self.core.next_timer_ms()


def consume(driver: Driver) -> None:
    core: ConsumerCore = driver.core
    core.begin_poll(driver.now_ms)
    try:
        duty = core.duty()
        if duty is not None:
            core.begin_duty(duty)
            if driver.random.random() < 0.3:
                driver.answer()
            core.duty_done(duty, driver.now_ms)
        driver.advance()
        core.raise_error()
    finally:
        core.end_poll(driver.now_ms)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "options",
    [
        {"group_protocol": "classic", "partition_assignment_strategy": "range"},
        {"group_protocol": "classic", "partition_assignment_strategy": "sticky"},
        {"group_protocol": "classic", "partition_assignment_strategy": "cooperative-sticky"},
        {"group_protocol": "consumer"},
    ],
    ids=["range", "sticky", "cooperative", "consumer"],
)
def test_consumer_survives_any_response(options: dict[str, str], seed: int) -> None:
    broker, view = Broker(seed), ClusterView()
    settings = read_settings({"bootstrap_servers": "h:1", "group_id": "g", **options})[1]
    driver = Driver(ConsumerCore(settings, view, member_id="me"), view, broker)
    core: ConsumerCore = driver.core
    view.apply(metadata(*(topic_row(name, leaders=[1, 2, 1]) for name in TOPICS)), 0)

    def subscribe() -> None:
        core.subscribe(driver.random.sample(TOPICS, driver.random.randint(1, 2)), None)

    subscribe()
    driver.run(
        lambda: consume(driver), lambda: consume(driver), lambda: consume(driver),
        lambda: driver.random.random() < 0.1 and subscribe(),
        lambda: driver.random.random() < 0.05 and core.unsubscribe(),
        lambda: driver.random.random() < 0.03 and core.leave(),
    )  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_share_consumer_survives_any_response(seed: int) -> None:
    # The core looks at each offset of an acquired range.
    broker, view = Broker(seed, largest=1_000), ClusterView()
    settings = read_share_settings({"bootstrap_servers": "h:1", "group_id": "g"})[1]
    driver = Driver(ShareCore(settings, view, member_id="me"), view, broker)
    core: ShareCore = driver.core
    view.apply(metadata(*(topic_row(name, leaders=[1, 2, 1]) for name in TOPICS)), 0)
    core.subscribe(["t"])

    def poll() -> None:
        core.begin_poll(driver.now_ms, 100)
        try:
            driver.advance()
            core.raise_error()
            core.fill(driver.now_ms)
        finally:
            core.end_poll(driver.now_ms)

    driver.run(poll, poll, lambda: driver.random.random() < 0.05 and core.subscribe(TOPICS))


class ProducerDriver:
    """A producer's core whose effects are answered in any order."""

    def __init__(self, seed: int, **settings: Any) -> None:
        self.broker = Broker(seed)
        self.random = self.broker.random
        self.view = ClusterView()
        self.core = ProducerCore(
            ProducerSettings(linger_ms=0, request_timeout_ms=1_000, delivery_timeout_ms=60_000, **settings),
            self.view,
            self.random,
        )
        self.now_ms = 1_000
        self.waiting: list[Any] = []

    def perform(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Wake):
                for wake in effect.wakers:
                    wake()
            elif isinstance(effect, Finished):
                for batch in effect.batches:
                    batch.announce()
            else:
                self.waiting.append(effect)

    def send(self) -> None:
        topic, partition = self.random.choice(TOPICS), self.random.choice((0, 1, 2, None))
        self.core.accumulator.append(topic, partition, (None, b"x", (), self.now_ms), Delivery)
        self.perform(self.core.step(self.now_ms))

    def pass_time(self) -> None:
        self.now_ms += self.random.choice((1, 50, 1_000, 90_000))
        self.perform(self.core.step(self.now_ms))

    def call(self) -> None:
        name = self.random.choice(("initialize", "begin", "commit", "abort", "begin"))
        self.core.call(lambda transactions: getattr(transactions, name)())
        self.perform(self.core.step(self.now_ms))

    def send_offsets(self) -> None:
        offsets = OffsetsOfGroup("g", -1, "", None, {TopicPartition("t", 0): OffsetAndMetadata(1)})
        self.core.call(lambda transactions: transactions.send_offsets(offsets))
        self.perform(self.core.step(self.now_ms))

    def answer(self) -> None:
        if not self.waiting:
            return
        effect = self.waiting.pop(self.random.randrange(len(self.waiting)))
        lost: ClientError | None = self.random.choice((None, None, None, None, *LOST))
        core, now_ms = self.core, self.now_ms
        if isinstance(effect, RequestMetadata):
            if lost is None:
                self.view.apply(self.broker.metadata(), now_ms)
            self.perform(core.metadata_changed(now_ms) if lost is None else core.metadata_failed(lost, now_ms))
        elif isinstance(effect, RequestProducerId):
            given = self.broker.fill(InitProducerIdResponse)
            if lost is None:
                self.perform(core.producer_id_given(given.producer_id, given.producer_epoch, now_ms))
            else:
                self.perform(core.producer_id_failed(lost, now_ms))
        elif isinstance(effect, AskCoordinator):
            answer: Any = lost or self.broker.response(effect.request)
            if isinstance(answer, ClientError):
                self.perform(core.coordinator_lost(answer, now_ms))
            else:
                self.perform(core.coordinator_answered(answer, self.random.choice((None, 0, 1, 2, -1)), now_ms))
        elif lost is not None:
            self.perform(core.lost(effect.request_id, lost, now_ms))
        else:
            ids = {batch.queue.topic: self.random.choice(self.broker.ids) for batch in effect.batches}
            outcomes = outcomes_of(self.broker.fill(ProduceResponse), ids, self.view)
            for batch in effect.batches:
                if self.random.random() < 0.7:
                    code = self.random.choice(LIKELY_CODES if self.random.random() < 0.6 else CODES)
                    outcomes[batch.queue.topic, batch.queue.partition] = Outcome(
                        code, self.random.choice((-1, 0, 2**63 - 1))
                    )
            self.perform(core.responded(effect.request_id, outcomes, self.random.choice((0, 0, 5, -1)), now_ms))

    def run(self, *actions: Callable[[], object]) -> None:
        for _ in range(STEPS):
            try:
                self.random.choice((self.send, self.answer, self.answer, self.pass_time, *actions))()
            except ClientError:  # the program gets it
                continue
            self.core.next_timer_ms()


@pytest.mark.parametrize("seed", SEEDS)
def test_producer_survives_any_response(seed: int) -> None:
    ProducerDriver(seed).run()


@pytest.mark.parametrize("seed", SEEDS)
def test_transactional_producer_survives_any_response(seed: int) -> None:
    driver = ProducerDriver(seed, transactional_id="x")
    driver.run(driver.call, driver.call, driver.send_offsets)


# -- administration ----------------------------------------------------------------------------------------------------

T0 = TopicPartition("t", 0)
PARTITIONS = [T0, TopicPartition("u", 2)]
RESOURCES = [ConfigResource.topic("t"), ConfigResource.broker(1)]
RULE = Acl(AclResource.topic("t"), "User:a", AclOperation.READ)
SALTS = itertools.repeat(b"salt")
CALLS: dict[str, Callable[[], Any]] = {
    "describe_cluster": lambda: cluster.describe(True),
    "log_directories": lambda: cluster.log_directories(None, None),
    "features": cluster.features,
    "alter_features": lambda: cluster.alter_features({"share.version": 1}, False, False),
    "quorum": cluster.quorum,
    "producers": lambda: cluster.producers(PARTITIONS),
    "create_topics": lambda: topics.create(["t", "new"], False),
    "delete_topics": lambda: topics.delete(["t", "u"]),
    "create_partitions": lambda: topics.grow({"t": 5}, False),
    "list_topics": lambda: topics.list_all(True),
    "describe_topics": lambda: topics.describe(["t", "u"]),
    "delete_records": lambda: topics.delete_before(dict.fromkeys(PARTITIONS, 1)),
    "elect_leaders": lambda: topics.elect(PARTITIONS, False),
    "reassign": lambda: topics.reassign({T0: [1, 2]}),
    "reassignments": topics.reassignments,
    "describe_configs": lambda: configs.describe(RESOURCES, False, False),
    "alter_configs": lambda: configs.alter({resource: {"a": "b"} for resource in RESOURCES}, False),
    "list_groups": lambda: groups.list_all((), ()),
    "describe_groups": lambda: groups.describe(["me", "t"]),
    "delete_groups": lambda: groups.delete(["me", "t"]),
    "remove_members": lambda: groups.remove_members("me", ["t"], "why"),
    "committed_by_groups": lambda: groups.committed_by_groups(["me", "t"]),
    "alter_offsets": lambda: groups.alter("me", dict.fromkeys(PARTITIONS, 1)),
    "delete_offsets": lambda: groups.forget("me", PARTITIONS),
    "lag": lambda: groups.lag("me"),
    "describe_transactions": lambda: transactions.describe(["me", "t"]),
    "fence": lambda: transactions.fence(["me"]),
    "create_acls": lambda: access.create([RULE]),
    "describe_acls": lambda: access.describe(AclFilter()),
    "delete_acls": lambda: access.delete([RULE]),
    "describe_scram": lambda: access.describe_scram(["me"]),
    "alter_scram": lambda: access.alter_scram([ScramDeletion("me", "SCRAM-SHA-512")], SALTS),
    "create_token": lambda: tokens.create(["User:me"], "User:you", -1),
    "renew_token": lambda: tokens.renew(b"hmac", -1),
    "expire_token": lambda: tokens.expire(b"hmac", -1),
    "describe_tokens": lambda: tokens.describe(["User:me"]),
    "describe_quotas": lambda: access.describe_quotas(QuotaEntity(user="me"), False),
    "alter_quotas": lambda: access.alter_quotas({QuotaEntity(user="me"): {"consumer_byte_rate": 1}}, False),
    "share_offsets": lambda: share_groups.offsets("me", PARTITIONS),
    "alter_share_offsets": lambda: share_groups.alter("me", dict.fromkeys(PARTITIONS, 1)),
    "delete_share_offsets": lambda: share_groups.forget("me", ["t"]),
}


def carry_out(call: Call[Any, Any], broker: Broker, view: ClusterView) -> Any:
    """The outcome of one call, whose requests get any response."""
    progress: Progress[Any, Any] = Progress(call, 10_000, Backoff(100, 1_000))
    now_ms = 0.0
    while (step := progress.next_round(view, now_ms)) is not None:
        now_ms += step.wait_ms + 100
        if step.refresh is not None:
            view.apply(broker.metadata(), now_ms)
        for group in step.coordinators:
            progress.found(group, 1)
        for send in step.sends:
            answer = broker.response(send.request)
            if isinstance(answer, ClientError):
                progress.failed(send, answer)
            else:
                progress.answered(send, answer)
    return progress.outcome


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CALLS)
def test_administration_survives_any_response(name: str, seed: int) -> None:
    broker, view = Broker(seed), ClusterView()
    view.apply(metadata(*(topic_row(each, leaders=[1, 2, 1]) for each in TOPICS)), 0)
    with contextlib.suppress(ClientError, StopIteration):  # the program gets the error
        made = CALLS[name]()
        if isinstance(made, Call):
            carry_out(made, broker, view)
            return
        call = next(made)
        while True:
            call = made.send(carry_out(call, broker, view))

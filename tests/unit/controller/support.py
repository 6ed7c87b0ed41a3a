"""A controller with brokers and simple rules for settings."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import TypeVar

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices, finish
from ottla.controller import Controller, ControllerSettings, DescribedConfig, Outcome
from ottla.metadata.features import SUPPORTED_FEATURES, bootstrap_records
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener

R = TypeVar("R")
LISTS = {"cleanup.policy": "delete", "cordoned.log.dirs": ""}


class Rules:
    """Simple rules: numbers for `*.ms` and `*.bytes`, lists for the names in LISTS, others by their suffix."""

    def validate(
        self,
        kind: int,
        name: str,
        configs: Mapping[str, str],
        changed: frozenset[str],
        broker: Mapping[str, str],
        cluster: Mapping[str, str],
    ) -> None:
        for key, value in configs.items():
            if key not in LISTS and not key.endswith(
                (".ms", ".bytes", ".enable", ".replicas", ".mirror", ".state", ".servers", ".prefix", "topics")
            ):
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {key}")
            if key.endswith((".ms", ".bytes")) and not value.lstrip("-").isdecimal():
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Invalid value {value} for {key}")

    def is_list(self, kind: int, key: str) -> bool:
        return key in LISTS

    def default(self, kind: int, key: str) -> str | None:
        return LISTS.get(key)

    def describe_topic(
        self, configs: Mapping[str, str], broker: Mapping[str, str], cluster: Mapping[str, str]
    ) -> list[DescribedConfig]:
        return [DescribedConfig(name, value, False, 1, False) for name, value in configs.items()]


class Cluster:
    """A controller that applies each outcome at once."""

    def __init__(
        self, brokers: int = 1, settings: ControllerSettings | None = None, racks: str = "", *, seed: int = 5
    ) -> None:
        self.controller = Controller(
            node_id=1, cluster_id="cluster", rules=Rules(), random=Random(seed), settings=settings
        )
        self.offset = 0
        self.epochs: dict[int, int] = {}
        self.do(Outcome(list(bootstrap_records()), None))
        for broker_id in range(1, brokers + 1):
            self.register(broker_id, racks[broker_id - 1] if racks else None)

    def do(self, decided: Outcome[R] | Slices[Outcome[R]]) -> R:
        outcome = decided if isinstance(decided, Outcome) else finish(decided)
        if outcome.records:
            self.offset += len(outcome.records)
            self.controller.replay(outcome.records, self.offset - 1, 1)
            self.controller.image.validate()
        return outcome.response

    def register(self, broker_id: int, rack: str | None = None, *, incarnation: int = 1, clean: bool = True) -> None:
        response = self.do(
            self.controller.register_broker(
                registration(broker_id, rack, incarnation), clean_shutdown=clean, fenced=False
            )
        )
        self.epochs[broker_id] = response.broker_epoch


def registration(broker_id: int, rack: str | None = None, incarnation: int = 1) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id="cluster",
        incarnation_id=bytes([broker_id, incarnation]) * 8,
        listeners=[Listener("PLAINTEXT", "localhost", 9092, 0)],
        features=[Feature(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()],
        rack=rack,
        log_dirs=[bytes([broker_id, 7]) * 8],
    )

"""How pipelines run: the cluster, the place of the checkpoints, and whether to end at the current end of the topics.

Also the options of `format("ottla")` for keys and values. Without Spark.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.streams.declarations import Pipeline, Table
from ottla.streams.event_time import milliseconds
from ottla.streams.metrics_address import MetricsAddress
from ottla.streams.pacing import Pace, pace_of
from ottla.streams.registries import Registry, first
from ottla.streams.schemas import REGISTRY

_LOCAL_BROKER: Final = "127.0.0.1:9092"
_SCHEMA_TYPES: Final = {"avro": "AVRO", "json": "JSON", "protobuf": "PROTOBUF"}
"""The types of schemas in a registry, by the formats of declarations."""


def default_bootstrap() -> str:
    """Return the brokers that a program uses if it names none: $OTTLA_BOOTSTRAP, or a broker on this machine."""
    return os.environ.get("OTTLA_BOOTSTRAP") or _LOCAL_BROKER


@dataclass(frozen=True)
class Settings:
    """The settings of a run."""

    client: Mapping[str, str] = field(repr=False)
    """Settings that all Kafka clients have, by Kafka's names; `bootstrap.servers` is one of them. Some are secret."""
    checkpoints: str
    """A directory that all nodes can reach; it has a directory for each pipeline."""
    once: bool = False
    """Whether the queries end when they have processed the records of now."""
    starts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Where a new checkpoint starts, by topic and partition; by default where the streams say."""
    latency_ms: int | None = None
    """How long a record may wait for its micro-batch, in all pipelines; by default as they say."""
    registry: Registry | None = None
    """The schema registry of inputs and outputs that have none of their own, and whose pipeline has none."""
    metrics: MetricsAddress | None = None
    """Where to serve the metrics of the queries; by default nowhere."""
    has_ticks: bool = False
    """Whether records with the header TICK move the event time; for tests."""

    def of_clients(self) -> dict[str, str]:
        """The options of `format("ottla")` for these clients."""
        return {f"kafka.{name}": value for name, value in self.client.items()}

    def pace(self, pipeline: Pipeline, *, has_clock: bool = False) -> Pace:
        """When the micro-batches of a query of a pipeline begin. Queries with an end have no pauses."""
        latency_ms = milliseconds("latency", pipeline.latency) if self.latency_ms is None else self.latency_ms
        is_limited = pipeline.max_records is not None
        return pace_of(0 if self.once else latency_ms, is_limited=is_limited, has_clock=has_clock)

    def checkpoint(self, pipeline: Pipeline) -> str:
        """The directory of a pipeline."""
        return f"{self.checkpoints.rstrip('/')}/{pipeline.name}"


def format_options(part: str, kind: str, schema: str | None, registries: Sequence[Registry | None]) -> dict[str, str]:
    """Return the options of `format("ottla")` for a key or value; none for text and bytes.

    The first of `registries` is used if the schema is in a registry. Raises StreamsError.
    """
    if kind in _SCHEMA_TYPES and schema == REGISTRY:
        return {f"{part}.format": "registry", f"{part}.schemaType": _SCHEMA_TYPES[kind], **first(*registries)}
    if kind == "json":
        return {f"{part}.format": kind, f"{part}.schema": schema or ""}
    if kind == "avro":
        return {f"{part}.format": kind, f"{part}.avro.schema": schema or ""}
    if kind == "protobuf":
        message, _, descriptors = (schema or "").partition(" ")
        return {
            f"{part}.format": kind,
            f"{part}.protobuf.message": message,
            f"{part}.protobuf.descriptors": descriptors,
        }
    return {}


def options_of_table(
    given: Table, clients: Mapping[str, str], registries: Sequence[Registry | None] = ()
) -> dict[str, str]:
    """Return the options with which all records of a table are read; `registries` come after the table's own."""
    formats = format_options("value", given.value, given.schema, (given.registry, *registries))
    return {**clients, "subscribe": given.topic, **formats}

"""A schema registry in memory, and topics whose records must have its schemas."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import Any

import fastavro

from ottla.broker.contracts.contracts import Contracts
from ottla.broker.contracts.schemas import Schemas
from ottla.broker.contracts.source import Registered
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.records import decode_batch, iter_batches
from ottla.schemas.model import Schema, SchemaType
from tests.unit.broker.harness import BrokerHarness, batch

TIMEOUT_MS = 5_000
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"]},
        {"name": "address", "type": {"type": "record", "name": "Address", "fields": [{"name": "zip", "type": "int"}]}},
    ],
}
ORDER_ID = 7


class StubRegistry:
    """A `Source`. While `held`, requests wait for `answer`; while `is_down`, they fail."""

    def __init__(self) -> None:
        self.schemas: dict[int, Registered] = {}
        self.asked: list[int] = []
        self.held: list[tuple[int, Completion[Registered | None]]] = []
        self.holds = False
        self.is_down = False
        self.closed = False

    def register(self, schema_id: int, subject: str, schema: Any = None, kind: SchemaType = SchemaType.AVRO) -> None:
        before = self.schemas.get(schema_id, Registered(frozenset()))
        text = before.schema if schema is None else Schema(kind, json.dumps(schema))
        self.schemas[schema_id] = Registered(before.subjects | {subject}, text, before.referenced)

    def fetch(self, schema_id: int, *, with_schema: bool) -> Completion[Registered | None]:
        self.asked.append(schema_id)
        answer: Completion[Registered | None] = Completion()
        if self.holds:
            self.held.append((schema_id, answer))
        else:
            self._answer(schema_id, answer, with_schema=with_schema)
        return answer

    def answer(self) -> None:
        """Answer the requests that wait."""
        held, self.held = self.held, []
        for schema_id, answer in held:
            self._answer(schema_id, answer, with_schema=True)

    def _answer(self, schema_id: int, answer: Completion[Registered | None], *, with_schema: bool) -> None:
        if self.is_down:
            answer.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The schema registry cannot be asked"))
            return
        found = self.schemas.get(schema_id)
        if found is not None and not with_schema:
            found = Registered(found.subjects)
        answer.complete(found)

    def close(self) -> None:
        self.closed = True


def use_registry(harness: BrokerHarness) -> StubRegistry:
    """Let the broker use a registry that knows the schema of orders."""
    registry = StubRegistry()
    registry.register(ORDER_ID, "orders-value", ORDER)
    schemas = Schemas(registry, harness.loop)
    harness.broker.security.contracts = Contracts(harness.broker, schemas, TIMEOUT_MS)
    return registry


def framed(schema_id: int, data: bytes = b"") -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + data


def order(number: int = 1, *, schema_id: int = ORDER_ID, zip_code: int = 10115) -> bytes:
    """A valid order in Confluent's wire format."""
    out = io.BytesIO()
    value = {"id": number, "customer": "Ada", "address": {"zip": zip_code}}
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), value)
    return framed(schema_id, out.getvalue())


def create_orders(harness: BrokerHarness, **configs: str) -> None:
    harness.create("orders", **{"confluent_value_schema_validation": "true", **configs})


def send(harness: BrokerHarness, *values: bytes | None, acks: int = -1, version: int = 12, **options: Any) -> Any:
    """Produce one batch of orders; returns the response of the partition, or of the request that waits."""
    data = batch(*values, **options)  # type: ignore[arg-type]
    response = harness.produce(("orders", {0: data}), acks=acks, version=version)
    if isinstance(response, Completion) and response.done:
        response = response.result()
    if response is None or isinstance(response, Completion):
        return response
    return row_of(response)


def row_of(response: Any) -> Any:
    return response.responses[0].partition_responses[0]


def stored(harness: BrokerHarness, topic: str = "orders", index: int = 0) -> list[Any]:
    """The records of a partition."""
    partition = harness.partition(topic, index)
    data = partition.look_up(0, 1 << 20, 0, min_one_batch=True)
    content: Any = data if isinstance(data, (bytes, bytearray, memoryview)) else data.read()  # type: ignore[union-attr]
    return [record for position, _ in iter_batches(content) for record in decode_batch(content, position)]


def values_of(records: Iterable[Any]) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in records]


def alter(harness: BrokerHarness, topic: str, **configs: str) -> int:
    """Change settings of a topic; returns the error code."""
    rows = [AlterableConfig(name, 0, value) for name, value in configs.items()]
    response = harness.ask(IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(2, topic, rows)]))
    code: int = response.responses[0].error_code
    return code

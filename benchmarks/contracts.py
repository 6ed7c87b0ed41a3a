"""The costs of schema validation: CPU time of Produce requests without it, with the depth id and with the depth record.

    python -m benchmarks.contracts

Runs one node in this process without a network. Blocks of requests to three topics alternate, and the table has the
medians of the blocks. The Avro records have ten fields: numbers, texts, an enum, a union, an array and a nested record.
The first line is the check of whole records alone, without the request around it.
"""

from __future__ import annotations

import gc
import io
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Final

import fastavro
from rich.console import Console
from rich.table import Table
from tests.unit.broker.contracts.support import StubRegistry
from tests.unit.broker.harness import START_MS, BrokerHarness, open_harness

from ottla.broker.contracts.contracts import Contracts
from ottla.broker.contracts.schemas import Schemas
from ottla.protocol.frames import encode_request
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records import HEADER_SIZE, Codec, encode_batch
from ottla.records.framed_fields import framed_fields
from ottla.serde.avro_checks import AvroCheck

SCHEMA: Final = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": ["NEW", "PAID", "SENT"]}},
        {"name": "amount", "type": "double"},
        {"name": "quantity", "type": "int"},
        {"name": "paid", "type": "boolean"},
        {"name": "comment", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "created", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "address",
            "type": {
                "type": "record",
                "name": "Address",
                "fields": [{"name": "street", "type": "string"}, {"name": "zip", "type": "int"}],
            },
        },
    ],
}
SCHEMA_ID: Final = 7
DEPTHS: Final = ("off", "id", "record")
BATCHES: Final = (1, 100, 1000)
CODECS: Final = (Codec.NONE, Codec.LZ4)
BLOCKS: Final = 60
RECORDS_PER_BLOCK: Final = 2_000


def values(count: int) -> list[bytes]:
    """Orders in Confluent's wire format, of 73 bytes on average."""
    schema = fastavro.parse_schema(SCHEMA)
    found = []
    for i in range(count):
        order = {
            "id": i,
            "customer": f"customer-{i}",
            "status": "PAID",
            "amount": i * 1.5,
            "quantity": i % 7,
            "paid": True,
            "comment": "a comment here" if i % 2 else None,
            "tags": ["red", "blue"],
            "created": START_MS + i,
            "address": {"street": "Main Street 5", "zip": 12345},
        }
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, order)
        found.append(b"\0" + SCHEMA_ID.to_bytes(4, "big") + out.getvalue())
    return found


def checks_per_second() -> float:
    """Whole records that the kernels find and check in a second of CPU time."""
    batch = encode_batch([(START_MS, b"k", value, ()) for value in values(1000)])
    check = AvroCheck(json.dumps(SCHEMA))
    began = time.process_time()
    done = 0
    while time.process_time() - began < 1:
        fields = framed_fields(batch, HEADER_SIZE, len(batch), 1000, of_keys=False)
        assert check.check(fields.data, fields.places, SCHEMA_ID, range(1000)) == []
        done += 1000
    return done / (time.process_time() - began)


def prepare(harness: BrokerHarness) -> None:
    """Create one topic for each depth."""
    registry = StubRegistry()
    harness.broker.security.contracts = Contracts(harness.broker, Schemas(registry, harness.loop), 1000)
    harness.create("off")
    for depth in DEPTHS[1:]:
        registry.register(SCHEMA_ID, f"{depth}-value", SCHEMA)
        harness.create(depth, confluent_value_schema_validation="true", ottla_schema_validation_depth=depth)


def sender(harness: BrokerHarness, topic: str, records: int, codec: Codec) -> Callable[[], float]:
    """Return a function that produces one block and returns the microseconds of CPU time for a request."""
    data = encode_batch([(START_MS, b"k", value, ()) for value in values(records)], codec=codec)
    request = ProduceRequest(
        acks=1, topic_data=[TopicProduceData(topic, partition_data=[PartitionProduceData(0, data)])]
    )
    frame = b"".join(encode_request(request, 11, 1, "bench"))[4:]
    requests = max(RECORDS_PER_BLOCK // records, 2)
    if records == 1:
        requests = 200

    def block() -> float:
        frames = [memoryview(bytearray(frame)) for _ in range(requests)]
        began = time.process_time_ns()
        for each in frames:
            harness.dispatch(harness.client, each)  # type: ignore[arg-type]
        return (time.process_time_ns() - began) / requests / 1000

    return block


def measured(harness: BrokerHarness) -> Iterator[tuple[int, Codec, dict[str, float]]]:
    """Median microseconds per request of each depth, for each size of batch and codec."""
    for records in BATCHES:
        for codec in CODECS:
            blocks = {depth: sender(harness, depth, records, codec) for depth in DEPTHS}
            costs: dict[str, list[float]] = {depth: [] for depth in DEPTHS}
            for number in range(BLOCKS):
                for depth in DEPTHS if number % 2 else reversed(DEPTHS):
                    costs[depth].append(blocks[depth]())
            yield records, codec, {depth: statistics.median(each[2:]) for depth, each in costs.items()}


def main() -> None:
    """Print the table."""
    console = Console()
    console.print(f"The check of whole records alone: {checks_per_second() / 1e6:.1f} million records per CPU-second")
    table = Table("records in a batch", "codec", *(f"{depth}, us per request" for depth in DEPTHS))
    for depth in DEPTHS:
        table.add_column(f"{depth}, krec per CPU-second")
    gc.disable()
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as place, open_harness(place) as harness:
        prepare(harness)
        for records, codec, costs in measured(harness):
            rates = [f"{records / costs[depth] * 1000:,.0f}" for depth in DEPTHS]
            table.add_row(f"{records}", codec.name.lower(), *(f"{costs[depth]:.1f}" for depth in DEPTHS), *rates)
    console.print(table)


if __name__ == "__main__":
    main()

"""A corrupt byte of a sealed segment: no client gets it as a record, and other partitions are not affected."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from tests.chaos.support import Writer, create_topic, read_numbers
from tests.clients.wire import Connection, batch, fetch, produce
from tests.ottla_process import ForkedOttla

TOPIC = "corrupted"


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("position", [30, 5000], ids=["in a batch's header", "in a record"])
def test_corrupt_byte_is_never_served_as_a_record(tmp_path: Path, position: int, restart: bool) -> None:
    with ForkedOttla(tmp_path) as process:
        create_topic(process, TOPIC, partitions=2, segment_bytes=1_048_576)
        writers = [Writer(process, TOPIC, partition, size=100_000) for partition in (0, 1)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.wait_for(25)
            writer.finish()
        segment = process.data / f"{TOPIC}-0" / f"{0:020}.log"
        size = segment.stat().st_size
        batch_size = size // 10  # all batches have this size
        with segment.open("r+b") as file:
            file.seek(3 * batch_size + position)
            (byte,) = file.read(1)
            file.seek(3 * batch_size + position)
            file.write(bytes([byte ^ 0xFF]))
        if restart:
            process.stop()
            process.start()
        with Connection(process.bootstrap) as connection:
            for offset in range(3):
                assert fetch(connection, TOPIC, 0, offset, 1)[0] == 0
        refused_by_client(process.bootstrap)
        writers[1].check()
        assert read_numbers(process.bootstrap, TOPIC, 0, start=10)[10] == 10, "the next segment is whole"
        with Connection(process.bootstrap) as connection:
            assert produce(connection, TOPIC, batch([b"go on"]), 0).error == 0
    process.assert_no_traceback()


def refused_by_client(bootstrap: str) -> None:
    """A client that checks CRCs reads offsets 0 to 2, then an error, and no further record."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, check_crcs=True, fetch_max_wait_ms=50)
    place = TopicPartition(TOPIC, 0)
    consumer.assign([place])
    consumer.seek(place, 0)
    offsets: list[int] = []
    error: KafkaError | None = None
    for _ in range(20):
        try:
            polled = consumer.poll(timeout_ms=100, max_records=1)
        except KafkaError as problem:
            error = problem
            break
        offsets += [message.offset for messages in polled.values() for message in messages]
    consumer.close(autocommit=False, timeout_ms=500)
    assert offsets == [0, 1, 2], "records up to the corrupt batch, and none beyond"
    assert error is not None, "the client gets an error"

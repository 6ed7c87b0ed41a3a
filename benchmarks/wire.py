"""The common parts of the races: figures, topics, and single requests over a bare socket."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
import uuid
from collections.abc import Iterator

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.brokers import Broker
from ottla.protocol.frames import encode_request
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records import encode_batch

Figures = dict[str, float]
DEADLINE_S = 120.0


def new_topic(broker: Broker, partitions: int, **config: str) -> str:
    """A fresh topic on `broker`."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for done in admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values():
        done.result(30)
    time.sleep(0.2)
    return name


@contextlib.contextmanager
def passing_topic(broker: Broker, partitions: int, **config: str) -> Iterator[str]:
    """A topic that is deleted afterwards, so that runs do not fill the page cache; its files a second later or more."""
    name = new_topic(broker, partitions, **config)
    yield name
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.delete_topics([name])[name].result(30)


def wait_until_deleted(broker: Broker, topic: str) -> None:
    """Wait until the files of a deleted topic are removed, so that the next run does not pay for it."""
    deadline = time.monotonic() + DEADLINE_S
    while any(broker.data.glob(f"{topic}-*")):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{broker.name} did not delete the files of {topic} within {DEADLINE_S:g} s")
        time.sleep(0.05)


def produce_frame(topic: str, acks: int) -> bytes:
    """A request that produces one record of 100 B, version 9."""
    batch = bytes(encode_batch([(int(time.time() * 1000), None, b"x" * 100, [])]))
    data = PartitionProduceData(index=0, records=memoryview(batch))
    request = ProduceRequest(
        acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    return b"".join(encode_request(request, 9, 1, "bench"))


def fetch_frame(topic: str, offset: int) -> bytes:
    """A request for what is at `offset` of partition 0, at most 1 MB of it, version 12, without a session."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic=topic, partitions=[partition])]
    )
    return b"".join(encode_request(request, 12, 1, "bench"))


def list_offsets_frame(topic: str, timestamp: int) -> bytes:
    """A request for the first offset of partition 0 at `timestamp` or later, version 7."""
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    return b"".join(encode_request(request, 7, 1, "bench"))


def receive(connection: socket.socket) -> bytes:
    """The next answer, without its size."""
    size = struct.unpack(">i", _exactly(connection, 4))[0]
    return _exactly(connection, size)


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise RuntimeError("the broker closed the connection")
        data += more
    return data

"""Transactions that stay open, for tests of the tools that show and end them."""

from __future__ import annotations

from ottla.clients import Admin, Producer
from ottla.clients.admin import ConfigResource
from ottla.common.errors import ErrorCode
from ottla.protocol.frames import decode_response_header, encode_request
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.records import BatchProducer, encode_batch
from ottla.records.batch import TRANSACTIONAL
from tests.clients.support import wait_until
from tests.clients.wire import Connection

UNKNOWN_PRODUCER = 1 << 40
PRODUCE_VERSION = 11
TIMEOUT_MS = 600_000
LONG_AGO_MS = 1_700_000_000_000
VERIFICATION = "transaction.partition.verification.enable"


def open_transaction(bootstrap: str, transactional_id: str, topic: str) -> Producer:
    """Write a record to partition 0 in a transaction that stays open; the caller closes the producer."""
    producer: Producer = Producer(
        {"transactional.id": transactional_id, "transaction.timeout.ms": TIMEOUT_MS}, bootstrap_servers=bootstrap
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.send(topic, b"open", partition=0).result(20)
    return producer


def hang(bootstrap: str, topic: str, producer_id: int = UNKNOWN_PRODUCER) -> None:
    """Write an old record to partition 0 in a transaction that no coordinator knows.

    The broker refuses that while it verifies transactional writes (KIP-890).
    """
    brokers = ConfigResource.broker(None)
    data = encode_batch(
        [(LONG_AGO_MS, None, b"hangs", [])],
        producer=BatchProducer(producer_id, 0, 0), attributes=TRANSACTIONAL,
    )  # fmt: skip
    rows = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, data)])]
    request = ProduceRequest(transactional_id="lost", acks=-1, timeout_ms=10_000, topic_data=rows)
    with Admin(bootstrap_servers=bootstrap) as admin, Connection(bootstrap) as connection:

        def written() -> bool:
            connection.send(b"".join(encode_request(request, PRODUCE_VERSION, 7, "test")))
            answer = connection.receive()
            position = decode_response_header(answer, ProduceRequest.API_KEY, PRODUCE_VERSION)[1]
            response = ProduceResponse.decode_from(answer, position, PRODUCE_VERSION)[0]
            return response.responses[0].partition_responses[0].error_code == ErrorCode.NONE

        admin.alter_config(brokers, {VERIFICATION: "false"})
        try:
            wait_until(written, "the broker applies the setting")  # stock Kafka does so after its response
        finally:
            admin.alter_config(brokers, {VERIFICATION: None})

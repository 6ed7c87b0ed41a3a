"""`python -m tests.chaos.copier BOOTSTRAP NUMBER`: librdkafka copies a topic, as a member of a group, until an error.

Each transaction has up to three records of the source and the group's offsets behind them.
"""

from __future__ import annotations

import sys

from confluent_kafka import KafkaException, Producer, TopicPartition

from .support import WAIT_S
from .transactional import QUICK, reader

SOURCE, TARGET, GROUP = "source", "target", "copiers"
FAILED = 3


def main(bootstrap: str, number: str) -> int:
    """Return the exit code for a Kafka error."""
    settings = {"transactional.id": f"copier-{number}", "transaction.timeout.ms": 10_000, **QUICK}
    # A static member gets its partitions back at once when its program starts again.
    consumer = reader(bootstrap, GROUP, **{"group.instance.id": f"copier-{number}", "session.timeout.ms": 6_000})
    try:
        producer = Producer({"bootstrap.servers": bootstrap, **settings})
        producer.init_transactions(WAIT_S)
        consumer.subscribe([SOURCE])
        while True:
            messages = [each for each in consumer.consume(3, 0.2) if each.error() is None]
            if not messages:
                continue
            producer.begin_transaction()
            for message in messages:
                producer.produce(TARGET, message.value(), partition=message.partition())
            ends = {each.partition(): each.offset() + 1 for each in messages}
            offsets = [TopicPartition(SOURCE, partition, end) for partition, end in ends.items()]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), WAIT_S)
            producer.commit_transaction(WAIT_S)
    except KafkaException:
        return FAILED


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

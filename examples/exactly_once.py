"""Exactly-once between two topics: consume, transform, produce, with the offsets in the same transaction.

    ottla topic create orders orders-upper          # or any Kafka
    python examples/exactly_once.py localhost:9092 orders orders-upper

Kill it at any time and start it again: each record of the first topic is in the second one exactly once, for readers
with isolation_level="read_committed". Run several with different names as the last argument: they share the partitions.
"""

from __future__ import annotations

import sys

from ottla.clients import Consumer, Producer, ProducerUnusable, TransactionFailed


def transform(bootstrap: str, source: str, target: str, name: str = "0", idle_polls: int | None = None) -> int:
    """Copy records in upper case until no record came in `idle_polls` polls; returns how many were copied."""
    copied = idle = 0
    with (
        Producer(bootstrap_servers=bootstrap, transactional_id=f"upper-{name}") as producer,
        Consumer(
            bootstrap_servers=bootstrap,
            group_id="upper",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer,
    ):
        producer.init_transactions()
        consumer.subscribe([source])
        while idle_polls is None or idle < idle_polls:
            records = consumer.poll(1.0)
            idle = 0 if records else idle + 1
            if not records:
                continue
            try:
                with producer.transaction(consumer):
                    for record in records:
                        producer.send(target, record.value and record.value.upper(), key=record.key)
            except TransactionFailed as error:  # for example after a rebalance: the records are read again
                print(f"repeating: {error}", file=sys.stderr)
            else:
                copied += len(records)
    return copied


if __name__ == "__main__":
    bootstrap, source, target = sys.argv[1:4]
    name = sys.argv[4] if len(sys.argv) > 4 else "0"
    try:
        transform(bootstrap, source, target, name)
    except ProducerUnusable as error:  # another program took over the name
        sys.exit(str(error))
    except KeyboardInterrupt:
        pass

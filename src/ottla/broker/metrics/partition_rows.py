"""Metrics of topics and partitions. With many partitions this is most of a scrape, so its loops are plain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.broker.metrics import families as f
from ottla.common.slices import Slices
from ottla.metrics.exposition import Samples, escaped, labelled
from ottla.partitions.traffic import TopicTraffic

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.metrics.transaction_ages import TransactionAges
    from ottla.log import Log
    from ottla.partitions.partition import Partition
    from ottla.partitions.partitions import Partitions

# Partitions between two looks at the clock: less than a millisecond.
_AT_ONCE: Final = 50
_ASSIGNED_AT_ONCE: Final = 1_000
_TRAFFIC: Final = (
    (f.MESSAGES_IN, "messages_in"),
    (f.BYTES_IN, "bytes_in"),
    (f.BYTES_OUT, "bytes_out"),
    (f.REPLICATION_IN, "replication_bytes_in"),
    (f.REPLICATION_OUT, "replication_bytes_out"),
    (f.PRODUCED_BATCHES, "batches"),
    (f.FAILED_BATCHES, "failed_batches"),
    (f.FETCHED, "fetches"),
    (f.FAILED_FETCHES, "failed_fetches"),
)


def add_topics(samples: Samples, partitions: Partitions) -> Slices[None]:
    """Add the traffic of each topic, and of all topics together in a sample without labels, as Kafka has it."""
    total = TopicTraffic()
    total.add(partitions.traffic.deleted)
    by_topic = list(partitions.traffic.by_topic.items())
    for number, (topic, traffic) in enumerate(by_topic):
        total.add(traffic)
        if traffic.is_used:
            labels = labelled(topic=topic)
            for family, name in _TRAFFIC:
                samples.add(family, getattr(traffic, name), labels)
        if number % _AT_ONCE == 0:
            yield
    for family, name in _TRAFFIC:
        samples.add(family, getattr(total, name))


@dataclass(slots=True)
class _Counts:
    """Partitions of this node by their state."""

    led: int = 0
    open: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0


def add_partitions(samples: Samples, broker: Broker, transactions: TransactionAges) -> Slices[None]:
    """Add the state of each open partition, and the sums over all."""
    counts = _Counts()
    rows = _Rows(samples, transactions, broker.clock.monotonic_ms())
    for number, partition in enumerate(list(broker.partitions)):
        rows.add_led(partition, counts)
        if number % _AT_ONCE == 0:
            yield
    for number, followed in enumerate(broker.partitions.followed()):
        rows.add_log(followed.log)
        transactions.age_ms(followed.log, rows.now_ms)
        counts.open += 1
        if number % _AT_ONCE == 0:
            yield
    yield from transactions.forget_closed(broker.partitions)
    samples.add(f.LEADERS, counts.led)
    samples.add(f.PARTITIONS, counts.open)
    samples.add(f.UNDER_REPLICATED, counts.under_replicated)
    samples.add(f.UNDER_MIN_ISR, counts.under_min_isr)
    samples.add(f.AT_MIN_ISR, counts.at_min_isr)
    yield from _add_assigned(samples, broker, counts.open)


def _add_assigned(samples: Samples, broker: Broker, open_count: int) -> Slices[None]:
    """Add what the metadata knows of the replicas of this node."""
    node_id = broker.node_id
    assigned = moving = seen = 0
    for topic in broker.metadata.image.topics_by_name.values():
        for partition in topic.partitions.values():
            assigned += node_id in partition.replicas
            moving += partition.leader == node_id and partition.is_reassigning
            seen += 1
            if seen % _ASSIGNED_AT_ONCE == 0:
                yield
    samples.add(f.OFFLINE_REPLICAS, max(assigned - open_count, 0))
    samples.add(f.REASSIGNING, moving)


class _Rows:
    """The lines of the metrics of each partition."""

    def __init__(self, samples: Samples, transactions: TransactionAges, now_ms: int) -> None:
        self._transactions, self.now_ms = transactions, now_ms
        self._open_transaction = samples.of(f.OPEN_TRANSACTION)
        self._size, self._segments = samples.of(f.LOG_SIZE), samples.of(f.LOG_SEGMENTS)
        self._start, self._end = samples.of(f.LOG_START), samples.of(f.LOG_END)
        self._replicas, self._isr = samples.of(f.PARTITION_REPLICAS), samples.of(f.PARTITION_ISR)
        self._under_replicated = samples.of(f.PARTITION_UNDER_REPLICATED)
        self._under_min_isr, self._at_min_isr = (
            samples.of(f.PARTITION_UNDER_MIN_ISR),
            samples.of(f.PARTITION_AT_MIN_ISR),
        )
        self._lso_lag = samples.of(f.PARTITION_LSO_LAG)

    def add_log(self, log: Log) -> str:
        """Add the log of a partition; returns its labels."""
        topic, index = log.topic_partition
        labels = f'{{topic="{escaped(topic)}",partition="{index}"}}'
        self._size.append(f"kafka_log_log_size{labels} {log.size}")
        self._segments.append(f"kafka_log_log_numlogsegments{labels} {len(log.segments)}")
        self._start.append(f"kafka_log_log_logstartoffset{labels} {log.log_start_offset}")
        self._end.append(f"kafka_log_log_logendoffset{labels} {log.log_end_offset}")
        return labels

    def add_led(self, partition: Partition, counts: _Counts) -> None:
        """Add a partition that this node leads."""
        labels = self.add_log(partition.log)
        replicas, isr = partition.replica_count, partition.isr_size
        # A topic with fewer replicas than min.insync.replicas needs all of them, as `check_acks` does.
        least = min(partition.settings.min_insync_replicas, replicas)
        is_under_replicated, is_under_min = isr < replicas, isr < least
        is_at_min = isr == least
        counts.led += 1
        counts.open += 1
        counts.under_replicated += is_under_replicated
        counts.under_min_isr += is_under_min
        counts.at_min_isr += is_at_min
        self._replicas.append(f"kafka_cluster_partition_replicascount{labels} {replicas}")
        self._isr.append(f"kafka_cluster_partition_insyncreplicascount{labels} {isr}")
        self._under_replicated.append(f"kafka_cluster_partition_underreplicated{labels} {is_under_replicated:d}")
        self._under_min_isr.append(f"kafka_cluster_partition_underminisr{labels} {is_under_min:d}")
        self._at_min_isr.append(f"kafka_cluster_partition_atminisr{labels} {is_at_min:d}")
        lag = partition.high_watermark - partition.last_stable_offset
        self._lso_lag.append(f"kafka_cluster_partition_laststableoffsetlag{labels} {lag}")
        age_ms = self._transactions.age_ms(partition.log, self.now_ms)
        if age_ms is not None:
            self._open_transaction.append(f"{f.OPEN_TRANSACTION.name}{labels} {age_ms / 1000}")

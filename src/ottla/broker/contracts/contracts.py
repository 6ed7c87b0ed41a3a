"""`Contracts`: decides about the batches of topics with schema validation."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from ottla.broker.contracts.dead_letters import DeadLetterPorts, write_dead_letters
from ottla.broker.contracts.schemas import Schemas
from ottla.broker.contracts.violations import Violation, find_violations
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import TopicPartition
from ottla.common.rate_limit import RateLimitedLog
from ottla.common.slices import Slices
from ottla.config import ConfigError
from ottla.log.producer_entry import WrittenBatch
from ottla.records import RecordError, encode_empty_batch
from ottla.records.compaction import retain
from ottla.records.contract import DEAD_LETTERS, WARN

if TYPE_CHECKING:
    from ottla.config import BrokerConfig
    from ottla.partitions.partition import Partition
    from ottla.records import BatchHeader, ProduceRules

logger = logging.getLogger(__name__)

URL: Final = "confluent.schema.registry.url"
TIMEOUT: Final = "ottla.schema.validation.timeout.ms"
# Records with an error of their own in a response; the others have the error of the batch.
MOST_RECORD_ERRORS: Final = 100
_SHOWN: Final = 3


class Contracts:
    """The schema validation of one node. Without `schemas` it refuses every batch: no registry is configured."""

    def __init__(self, node: DeadLetterPorts, schemas: Schemas | None, timeout_ms: int) -> None:
        self._node = node
        self._schemas = schemas
        self._timeout_ms = timeout_ms
        self._log = RateLimitedLog(logger)
        self.invalid_records: Counter[str] = Counter()
        """The number of invalid records of each topic since the start, however they were handled."""

    def admit(self, partition: Partition, header: BatchHeader, batch: memoryview) -> Slices[memoryview]:
        """Return the bytes to append for a validated batch, which must not be a view of a frame.

        It is the batch, or the batch without its invalid records. A batch without them keeps its offsets and sequence
        numbers. Raises KafkaError, with which the whole batch is refused: RecordError INVALID_RECORD, or
        REQUEST_TIMED_OUT if the registry or the dead letter topic cannot be reached.
        """
        where, rules = partition.topic_partition, partition.settings.rules
        contract = rules.contract
        if contract is None or _is_repeated(partition, header, batch):
            return batch
        try:
            violations = yield from self._find(rules, header, batch)
        except KafkaError as error:
            if contract.mode != WARN or error.code not in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INVALID_CONFIG):
                raise
            self._log.warning("Appending a batch to %s-%d without schema validation: %s", *where, error.message)
            return batch
        if not violations:
            return batch
        self.invalid_records[contract.topic] += len(violations)
        if contract.mode == WARN:
            text = "Appending %d invalid records to %s-%d, %d to this topic since the start: record %d: %s"
            count = self.invalid_records[contract.topic]
            self._log.warning(text, len(violations), *where, count, violations[0].row, violations[0].reason)
            return batch
        if contract.mode == DEAD_LETTERS:
            name = contract.dead_letter_topic
            yield from write_dead_letters(self._node, where, name, batch, violations, self._timeout_ms)
            return _without(batch, header, violations)
        raise _refusal(where, violations)

    def _find(self, rules: ProduceRules, header: BatchHeader, batch: memoryview) -> Slices[list[Violation]]:
        if self._schemas is None:
            text = f"{rules.topic} has schema validation, but broker {self._node.node_id} has no {URL}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)
        deadline_ms = self._node.clock.monotonic_ms() + self._timeout_ms
        return (yield from find_violations(batch, header, rules, self._schemas, deadline_ms))

    def close(self) -> None:
        """Cancel the requests to the registry; requests that wait for them fail."""
        if self._schemas is not None:
            self._schemas.source.close()


def create_contracts(node: DeadLetterPorts, config: BrokerConfig) -> Contracts:
    """Create the schema validation of a node. Raises ConfigError if the settings of the registry are wrong."""
    timeout_ms = config.int(TIMEOUT)
    if config[URL] is None:
        return Contracts(node, None, timeout_ms)
    try:
        from ottla.broker.contracts.source import RegistrySource  # noqa: PLC0415 - needs the extra `registry`
        from ottla.registry_client import RegistrySettingError  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError(f"{URL} needs the package {error.name}: pip install 'ottla[registry]'") from error
    try:
        source = RegistrySource.from_config(config, timeout_ms)
    except RegistrySettingError as error:
        raise ConfigError(f"confluent.{error}") from error
    return Contracts(node, Schemas(source, node.clock), timeout_ms)


def _is_repeated(partition: Partition, header: BatchHeader, batch: memoryview) -> bool:
    """Whether an idempotent producer resends a batch that was appended. Raises KafkaError for a gap before it.

    Such a batch is acknowledged without another check, and its invalid records are not written twice.
    """
    if header.producer_id < 0:
        return False
    return isinstance(partition.log.producers.admit(batch, header, "client", partition.topic_partition), WrittenBatch)


def _without(batch: memoryview, header: BatchHeader, violations: list[Violation]) -> memoryview:
    """Return the batch without these records.

    Base offset, last offset delta and base sequence do not change, as in a compacted batch: the producer computes the
    offsets of its records from the first one, and the sequence of its next batch from this one's. A batch without any
    record is appended, too.
    """
    removed = {each.row for each in violations}
    rest = retain(batch, 0, lambda offset, _key, _has_value: offset not in removed)
    return memoryview(encode_empty_batch(header) if rest is None else rest)


def _refusal(where: TopicPartition, violations: list[Violation]) -> RecordError:
    shown = "; ".join(f"record {each.row}: {each.reason}" for each in violations[:_SHOWN])
    count = len(violations)
    text = f"{count} {'record' if count == 1 else 'records'} of the batch for {where[0]}-{where[1]} violate the schemas"
    errors = [(each.row, each.reason) for each in violations[:MOST_RECORD_ERRORS]]
    return RecordError(ErrorCode.INVALID_RECORD, f"{text} of the topic: {shown}", errors)

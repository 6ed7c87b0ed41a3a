"""The invalid records of a batch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.contracts.rules import FieldRule, rules_of
from ottla.common.slices import Slices
from ottla.records import decode_batch
from ottla.records.framed_fields import NULL, UNFRAMED, FramedFields, framed_fields
from ottla.records.validation import uncompressed

if TYPE_CHECKING:
    from ottla.broker.contracts.checks import Check
    from ottla.broker.contracts.schemas import Schemas
    from ottla.records import BatchHeader, ProduceRules


_HEADERS: Final = re.compile(rb"__(key|value)_schema_id")
_IN_HEADER: Final = (
    "The schema id of the {name} is in the header {header}, which schema validation does not read: set "
    "{name}.schema.id.serializer (schema.id.serializer in Python) to the PrefixSchemaIdSerializer"
)


class Violation(NamedTuple):
    """An invalid key or value: the record's index in its batch, and why it is invalid, as a sentence."""

    row: int
    is_key: bool
    reason: str


def find_violations(
    batch: memoryview, header: BatchHeader, rules: ProduceRules, schemas: Schemas, deadline_ms: int
) -> Slices[list[Violation]]:
    """Return the invalid records of a validated batch, in their order, one violation for each record.

    Waits for the schema registry if it must. Raises KafkaError: REQUEST_TIMED_OUT if the registry does not answer,
    MESSAGE_TOO_LARGE, CORRUPT_MESSAGE or INVALID_RECORD for a compressed batch that cannot be read.
    """
    contract = rules.contract
    assert contract is not None, "the topic has schema validation"
    data, start, end = uncompressed(batch, header, rules)
    found: list[Violation] = []
    for rule in rules_of(contract):
        fields = framed_fields(data, start, end, header.record_count, of_keys=rule.is_key)
        for schema_id in fields.ids:
            if schema_id == NULL:  # a tombstone, or a record without a key
                continue
            if schema_id == UNFRAMED:
                reason = f"The {rule.name} does not begin with a zero byte and a schema id"
                found += [Violation(row, rule.is_key, reason) for row in fields.rows_with(schema_id)]
                continue
            known = schemas.known(schema_id, rule) or (yield from schemas.fetch(schema_id, rule, deadline_ms))
            if known is None:
                reason = schemas.describe(schema_id, rule)
                found += [Violation(row, rule.is_key, reason) for row in fields.rows_with(schema_id)]
            elif rule.whole_record and known.check is not None:
                found += yield from _check_rows(fields, schema_id, rule, known.check)
    if len(found) > 1:
        found = _one_of_each_row(found)
    return _with_headers(found, memoryview(data)[start:end], batch) if found else found


def _with_headers(violations: list[Violation], records: memoryview, batch: memoryview) -> list[Violation]:
    """Return the violations with another reason for fields whose schema id is in a header of the record.

    Serializers of Confluent Platform 8 can write the GUID of the schema there. Brokers check the bytes of the field.
    """
    if _HEADERS.search(records) is None:
        return violations
    rows = decode_batch(batch)
    explained = []
    for each in violations:
        name = "key" if each.is_key else "value"
        header = f"__{name}_schema_id"
        if any(found == header for found, _ in rows[each.row].headers):
            each = each._replace(reason=_IN_HEADER.format(name=name, header=header))
        explained.append(each)
    return explained


def _check_rows(fields: FramedFields, schema_id: int, rule: FieldRule, check: Check) -> Slices[list[Violation]]:
    found = []
    step = check.rows_at_once
    for first in range(0, fields.record_count, step):
        if first:
            yield
        rows = range(first, min(first + step, fields.record_count))
        for row, problem in check.check(fields, schema_id, rows):
            reason = f"The {rule.name} does not match schema id {schema_id}: {problem}"
            found.append(Violation(row, rule.is_key, reason))
    return found


def _one_of_each_row(violations: list[Violation]) -> list[Violation]:
    by_row: dict[int, Violation] = {}
    for each in violations:
        by_row.setdefault(each.row, each)
    return [by_row[row] for row in sorted(by_row)]

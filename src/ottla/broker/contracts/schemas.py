"""The schema ids that this node knows, and the requests for those that it does not know.

A schema id never changes its schema, and its registration under a subject is remembered for good, as serializers do.
The next request for an id that is not registered is sent after `MISSING_MS`, since it may be registered later. Produce
requests that need the same id at the same time share one request to the registry.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Final

from ottla.broker.contracts.checks import Check, UnreadableSchema, create_check, record_name
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices, result_of

if TYPE_CHECKING:
    from ottla.broker.contracts.rules import FieldRule
    from ottla.broker.contracts.source import Registered, Source
    from ottla.common.clock import Clock
    from ottla.schemas.model import Schema

logger = logging.getLogger(__name__)

MISSING_MS: Final = 1_000
# A client may send any ids: more missing ones are forgotten early.
MOST_MISSING: Final = 10_000


class KnownSchema:
    """A registered schema id. `check` is None for a schema whose text was not needed, or that cannot be checked."""

    __slots__ = ("check", "has_schema", "record_name", "subjects")

    def __init__(self, found: Registered, check: Check | None) -> None:
        self.subjects = set(found.subjects)
        self.has_schema = found.schema is not None
        self.record_name = None if found.schema is None else record_name(found.schema)
        self.check = check


class Schemas:
    """The schema ids that this node knows."""

    def __init__(self, source: Source, clock: Clock) -> None:
        self.source = source
        self._clock = clock
        self._known: dict[int, KnownSchema] = {}
        # When the next request for an id is allowed, by the id and its rule.
        self._missing: dict[tuple[int, FieldRule], int] = {}
        self._fetches: dict[tuple[int, bool], Completion[Registered | None]] = {}

    def known(self, schema_id: int, rule: FieldRule) -> KnownSchema | None:
        """The schema, if this node knows that it is registered under the rule's subject."""
        known = self._known.get(schema_id)
        if known is None or (rule.needs_schema and not known.has_schema):
            return None
        return known if rule.subject(known.record_name) in known.subjects else None

    def fetch(self, schema_id: int, rule: FieldRule, deadline_ms: int) -> Slices[KnownSchema | None]:
        """Ask the registry about an id that is not known; None if it is not registered under the rule's subject.

        Raises REQUEST_TIMED_OUT if the registry does not answer, or after the deadline.
        """
        now_ms = self._clock.monotonic_ms()
        if self._missing.get((schema_id, rule), now_ms) > now_ms:
            return None
        if now_ms >= deadline_ms:
            text = f"The schema registry was not asked for schema id {schema_id} within the time of the request"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)
        found = yield from result_of(self._fetch(schema_id, with_schema=rule.needs_schema))
        if found is not None:
            self._remember(schema_id, found)
        known = self.known(schema_id, rule)
        if known is None:
            if len(self._missing) >= MOST_MISSING:
                self._missing.clear()
            self._missing[schema_id, rule] = self._clock.monotonic_ms() + MISSING_MS
        return known

    def describe(self, schema_id: int, rule: FieldRule) -> str:
        """Say why an id is not valid."""
        known = self._known.get(schema_id)
        if known is None:
            return f"Schema id {schema_id} of the {rule.name} does not exist in the schema registry"
        subject = rule.subject(known.record_name)
        if subject is None:
            return f"Schema id {schema_id} of the {rule.name} has no record name, which {rule.strategy} needs"
        return f"Schema id {schema_id} of the {rule.name} is not registered under the subject {subject}"

    def _fetch(self, schema_id: int, *, with_schema: bool) -> Completion[Registered | None]:
        key = schema_id, with_schema
        fetch = self._fetches.get(key)
        if fetch is None:
            fetch = self._fetches[key] = self.source.fetch(schema_id, with_schema=with_schema)
            fetch.on_done(lambda _: self._forget(key))
        return fetch

    def _forget(self, key: tuple[int, bool]) -> None:
        del self._fetches[key]

    def _remember(self, schema_id: int, found: Registered) -> None:
        known = self._known.get(schema_id)
        if known is not None and (known.has_schema or found.schema is None):
            known.subjects |= found.subjects
            return
        check = None if found.schema is None else _check_of(schema_id, found.schema, found.referenced)
        self._known[schema_id] = KnownSchema(found, check)


def _check_of(schema_id: int, schema: Schema, referenced: tuple[tuple[str, Schema], ...]) -> Check | None:
    try:
        return create_check(schema, referenced)
    except UnreadableSchema as error:
        text = "Records with schema id %d (%s) are checked by their schema id only: %s"
        logger.warning(text, schema_id, schema.type, json.dumps(str(error)))
        return None

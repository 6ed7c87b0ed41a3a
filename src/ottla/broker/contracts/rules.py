"""The rule for the keys or the values of a topic: the subject of their schemas."""

from __future__ import annotations

from typing import NamedTuple

from ottla.records.contract import RECORD_NAME, TOPIC_NAME, Contract


class FieldRule(NamedTuple):
    """The rule for the keys or the values of a topic."""

    topic: str
    is_key: bool
    strategy: str
    whole_record: bool

    @property
    def name(self) -> str:
        """The field, as messages name it."""
        return "key" if self.is_key else "value"

    @property
    def needs_schema(self) -> bool:
        """Whether the text of a schema is needed, and not only its subjects."""
        return self.whole_record or self.strategy != TOPIC_NAME

    def subject(self, record_name: str | None) -> str | None:
        """The subject of a schema whose record has this name; None for a strategy that needs a name.

        Confluent's serializers register schemas under the same subjects.
        """
        if self.strategy == TOPIC_NAME:
            return f"{self.topic}-key" if self.is_key else f"{self.topic}-value"
        if record_name is None or self.strategy == RECORD_NAME:
            return record_name
        return f"{self.topic}-{record_name}"


def rules_of(contract: Contract) -> list[FieldRule]:
    """Return the rules for the fields that the contract checks."""
    fields = ((True, contract.key_strategy), (False, contract.value_strategy))
    return [
        FieldRule(contract.topic, is_key, strategy, contract.whole_record) for is_key, strategy in fields if strategy
    ]

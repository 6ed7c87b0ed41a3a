"""`Contract`: the settings of a topic whose keys or values must have a registered schema."""

from __future__ import annotations

from typing import Final

from ottla.common.values import value

REJECT: Final = "reject"
WARN: Final = "warn"
DEAD_LETTERS: Final = "dlq"
WHOLE_RECORD: Final = "record"

TOPIC_NAME: Final = "TopicNameStrategy"
RECORD_NAME: Final = "RecordNameStrategy"
TOPIC_RECORD_NAME: Final = "TopicRecordNameStrategy"


@value
class Contract:
    """The fields that are checked, and the treatment of invalid records.

    A strategy is the name of the function that returns the subject of a schema: TOPIC_NAME, RECORD_NAME or
    TOPIC_RECORD_NAME. It is empty for a field that is not checked.
    """

    topic: str
    key_strategy: str = ""
    value_strategy: str = TOPIC_NAME
    mode: str = REJECT
    whole_record: bool = False
    """Whether the field is decoded, in addition to the check of its schema id."""
    dead_letter_topic: str = ""

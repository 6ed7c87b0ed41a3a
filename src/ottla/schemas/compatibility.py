"""The levels of compatibility, and the messages of a registry's answer.

`check` compares a new schema with the versions of its subject and stops at the first version that it is incompatible
with, as Confluent's registry does. `messages` gives the texts of the answer in Confluent's form.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from ottla.schemas.model import Incompatibility, ParsedSchema

_LONGEST_SCHEMA: Final = 10 * 1024
_OTHER_TYPE: Final = Incompatibility("", "", "Incompatible because of different schema type")


class Level(StrEnum):
    """Which versions can read data of which others."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        """Whether the level concerns all versions instead of only the latest."""
        return self.endswith("_TRANSITIVE")

    @property
    def new_reads_old(self) -> bool:
        """Whether consumers with the new schema have to read existing data."""
        return self.startswith(("BACKWARD", "FULL"))

    @property
    def old_reads_new(self) -> bool:
        """Whether consumers with existing schemas have to read new data."""
        return self.startswith(("FORWARD", "FULL"))


class Version(NamedTuple):
    """A version of a subject; `number` is None where it is not known."""

    number: int | None
    schema: ParsedSchema


class Conflict(NamedTuple):
    """A version that a new schema is incompatible with, and why."""

    version: Version
    old_reads_new: list[Incompatibility]
    new_reads_old: list[Incompatibility]


def check(level: Level, new: ParsedSchema, newest_first: Iterable[Version]) -> Conflict | None:
    """Compare a schema with the versions before it. Only the versions that are needed are taken from the iterable."""
    if level is Level.NONE:
        return None
    for version in newest_first:
        conflict = _compare(level, new, version)
        if conflict is not None:
            return conflict
        if not level.is_transitive:
            break
    return None


def _compare(level: Level, new: ParsedSchema, version: Version) -> Conflict | None:
    old = version.schema
    if type(new) is not type(old):
        return Conflict(version, [], [_OTHER_TYPE])
    old_reads_new = old.incompatibilities(new) if level.old_reads_new else []
    new_reads_old = new.incompatibilities(old) if level.new_reads_old else []
    return Conflict(version, old_reads_new, new_reads_old) if old_reads_new or new_reads_old else None


def messages(level: Level, conflict: Conflict | None, *, validate_fields: bool = False) -> list[str]:
    """The messages of Confluent's answer to a verbose request; none for compatible schemas.

    Each reason is `{errorType:..., description:...}`; the old version, its text and the level follow.
    `validate_fields` is a setting of the subject that the answer repeats.
    """
    if conflict is None:
        return []
    texts = [message(each, reader="old", writer="new") for each in conflict.old_reads_new]
    texts += [message(each, reader="new", writer="old") for each in conflict.new_reads_old]
    if conflict.new_reads_old != [_OTHER_TYPE]:
        if conflict.version.number is not None:
            texts.append(f"{{oldSchemaVersion: {conflict.version.number}}}")
        old = conflict.version.schema.canonical
        if len(old) <= _LONGEST_SCHEMA:
            texts.append(f"{{oldSchema: '{old}'}}")
        else:
            texts.append(f"{{oldSchema: <truncated> '{old[:_LONGEST_SCHEMA]}...'}}")
    validated = "true" if validate_fields else "false"
    return [*texts, f"{{validateFields: '{validated}', compatibility: '{level}'}}"]


def message(found: Incompatibility, *, reader: str, writer: str) -> str:
    """An incompatibility in the form of Confluent's answers; `reader` and `writer` say which schema is which."""
    if not found.kind:
        return found.message
    text = found.message.replace("he reader schema", f"he {reader} schema")
    text = text.replace("he writer schema", f"he {writer} schema")
    if found.details:
        return f"{{errorType:'{found.kind}', description:'{text}', additionalInfo:'{found.details}'}}"
    return f'{{errorType:"{found.kind}", description:"{text}"}}'

"""The contents of the files that Ottla adds to a Spark checkpoint. Without I/O and Spark.

PROGRAM_FILE describes the program, so that a changed program is refused with the difference. START_FILE says where a
pipeline starts after `ottla stream reset`. `checkpoints` reads and writes them through Hadoop's file systems,
`resetting` on this machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from ottla.common.ids import TopicPartition
from ottla.streams.description import Description

PROGRAM_FILE: Final = "ottla-program.json"
START_FILE: Final = "ottla-start.json"
_VERSION: Final = 1


# -- the program -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredProgram:
    """The description of a program in its checkpoint."""

    shuffle_partitions: int
    sources: Mapping[str, str]
    """The topic of each input, by parameter."""
    operators: Mapping[str, Sequence[str]]
    """The operators with state of each query, by its name."""
    version: int = _VERSION

    def dumps(self) -> str:
        """Return the text for the checkpoint."""
        return json.dumps(asdict(self), indent=1, sort_keys=True)

    @classmethod
    def loads(cls, text: str) -> StoredProgram:
        """Read the text of a checkpoint. Raises ValueError."""
        try:
            found: Any = json.loads(text)
            return cls(
                int(found["shuffle_partitions"]), dict(found["sources"]), dict(found["operators"]), found["version"]
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the description of the program is unreadable: {error!r}") from None


def stored_program(description: Description, shuffle_partitions: int) -> StoredProgram:
    """Return what a checkpoint says about this program."""
    operators = {query.name: [str(each) for each in query.operators] for query in description.queries}
    return StoredProgram(shuffle_partitions, dict(description.sources), operators)


def differences(before: StoredProgram, now: StoredProgram) -> list[str]:
    """Return the changes of a program with which its checkpoint cannot be used, a sentence for each."""
    found = [
        f"its input {name!r} was the topic {before.sources.get(name)!r}, and is {now.sources.get(name)!r}"
        for name in sorted(before.sources.keys() | now.sources.keys())
        if before.sources.get(name) != now.sources.get(name)
    ]
    for name in sorted(before.operators.keys() | now.operators.keys()):
        was, is_now = (list(each.operators.get(name, [])) for each in (before, now))
        if was != is_now:
            found.append(f"query {name!r} had {_listed(was)}, and has {_listed(is_now)}")
    return found


def _listed(operators: Sequence[str]) -> str:
    return " and ".join(operators) if operators else "no state"


# -- the start after a reset -------------------------------------------------------------------------------------------


def dump_starts(starts: Mapping[TopicPartition, int], groups: Sequence[str] = ()) -> str:
    """Return the text of the file: the offsets, and the pipeline's groups for the next reset."""
    offsets: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in starts.items():
        offsets.setdefault(topic, {})[str(partition)] = offset
    return json.dumps({"version": _VERSION, "offsets": offsets, "groups": [*groups]}, indent=1, sort_keys=True)


def load_starts(text: str) -> dict[str, dict[str, int]]:
    """Return the offsets of the file by topic and partition. Raises ValueError."""
    try:
        found: Any = json.loads(text)
        return {
            topic: {str(int(partition)): int(offset) for partition, offset in offsets.items()}
            for topic, offsets in found["offsets"].items()
        }
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"the starting offsets are unreadable: {error!r}") from None


def load_groups(text: str) -> list[str]:
    """Return the groups of the file; none if an earlier version wrote it. Raises ValueError."""
    try:
        return [str(each) for each in json.loads(text).get("groups", ())]
    except (TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"the groups are unreadable: {error!r}") from None

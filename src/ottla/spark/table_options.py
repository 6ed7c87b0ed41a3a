"""The options and columns of `format("ottla-table")`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.spark.options import OptionError, SourceOptions, Subscribe, read_source_options

COLUMNS: Final = ("key", "value", "partition", "offset", "timestamp")
_PREFIX: Final = "groupprefix"
_TASKS: Final = "tasks"


@dataclass(frozen=True)
class TableOptions:
    """The options of a table."""

    source: SourceOptions
    topic: str
    prefix: str | None = None
    tasks: int = 1


def read_table_options(given: Mapping[str, str]) -> TableOptions:
    """Read and check the options. Raises OptionError."""
    options = {name.lower(): value for name, value in given.items()}
    prefix, tasks = options.pop(_PREFIX, None), options.pop(_TASKS, "1")
    source = read_source_options(options, streaming=False)
    if not isinstance(source.subscription, Subscribe) or len(source.subscription.topics) != 1:
        raise OptionError("A table is one topic: set subscribe to its name")
    if not tasks.isdecimal() or int(tasks) < 1:
        raise OptionError(f"tasks is {tasks!r}; it must be at least 1")
    return TableOptions(source, source.subscription.topics[0], prefix, int(tasks))

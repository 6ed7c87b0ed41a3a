"""A source that counts: each stream has the values STREAM:0, STREAM:1, ... Lost and repeated records are easy to see.

The streams are divided over the tasks by their numbers, so that another number of tasks divides them in another way.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import ClassVar

from ottla.connect import data
from ottla.connect.api import (
    Config,
    Connector,
    ExactlyOnce,
    Kind,
    SinkTask,
    SourceTask,
    SourceTaskContext,
)
from ottla.connect.config.definition import ConfigDef, Setting, SettingType
from ottla.connect.records import SourceRecord


class CountingTask(SourceTask):
    """Counts some streams."""

    def start(self, context: SourceTaskContext, config: Config) -> None:
        """Continue after the committed offsets."""
        self._topic, self._pause_s = config["topic"], int(config["pause.ms"]) / 1000
        self._next: dict[str, int] = {}
        for stream in filter(None, config["mine"].split(",")):
            offset = context.offset({"stream": stream})
            self._next[stream] = 0 if offset is None else int(offset["next"])

    def poll(self) -> Sequence[SourceRecord]:
        """Return the next value of each stream."""
        time.sleep(self._pause_s)
        records = []
        for stream, number in self._next.items():
            text = f"{stream}:{number}"
            records.append(
                SourceRecord(
                    self._topic, 0, None, None, data.STRING, text,
                    source_partition={"stream": stream}, source_offset={"next": number + 1},
                )
            )  # fmt: skip
            self._next[stream] = number + 1
        return records


class CountingConnector(Connector):
    """Divides streams over tasks."""

    kind: ClassVar[Kind] = Kind.SOURCE
    version: ClassVar[str] = "1"
    task_class: ClassVar[type[SourceTask | SinkTask]] = CountingTask
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            Setting("topic", SettingType.STRING, "The topic."),
            Setting("streams", SettingType.INT, "How many streams there are.", 6),
            Setting("pause.ms", SettingType.INT, "How long a poll waits.", 10),
        ]
    )

    def task_configs(self, most_tasks: int) -> Sequence[Config]:
        """Return one configuration for each task."""
        streams = [str(number) for number in range(int(self.config.get("streams", "6")))]
        shared: Mapping[str, str] = {"topic": self.config["topic"], "pause.ms": self.config.get("pause.ms", "10")}
        return [{**shared, "mine": ",".join(streams[number::most_tasks])} for number in range(most_tasks)]

    @classmethod
    def exactly_once(cls, config: Config) -> ExactlyOnce:
        """Offsets are exact."""
        return ExactlyOnce.SUPPORTED


def check_counts(values: Sequence[str], streams: int = 6) -> dict[str, int]:
    """Return how far each stream was counted. Fails for a record that is lost, repeated or out of order."""
    counts = {str(stream): 0 for stream in range(streams)}
    for value in values:
        stream, _, number = value.partition(":")
        assert int(number) == counts[stream], f"stream {stream} goes on with {number} instead of {counts[stream]}"
        counts[stream] += 1
    return counts

"""A source whose connector and task write to a log when they start and stop, and can be made to fail at their start.

The directory `directory` has the log; a file `broken` in it lets the connector fail.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from ottla.connect.api import Config, Connector, ConnectorContext, Kind, SinkTask, SourceTask, SourceTaskContext
from ottla.connect.config.definition import ConfigDef, Setting, SettingType
from ottla.connect.records import SourceRecord

SLOW_S = 0.5


def note(directory: str, text: str) -> None:
    """Append a line to the log."""
    with (Path(directory) / "steps.log").open("a") as log:
        log.write(f"{text}\n")


class SlowTask(SourceTask):
    """Has no records."""

    def start(self, context: SourceTaskContext, config: Config) -> None:
        """Note the start."""
        del context
        self._directory = config["directory"]
        note(self._directory, "task started")

    def poll(self) -> Sequence[SourceRecord]:
        """Return nothing."""
        time.sleep(0.02)
        return []

    def stop(self) -> None:
        """Stop slowly."""
        time.sleep(SLOW_S)
        note(self._directory, "task stopped")


class SlowConnector(Connector):
    """Starts slowly."""

    kind: ClassVar[Kind] = Kind.SOURCE
    version: ClassVar[str] = "1"
    task_class: ClassVar[type[SourceTask | SinkTask]] = SlowTask
    config_def: ClassVar[ConfigDef] = ConfigDef([Setting("directory", SettingType.STRING, "Where the log is.")])

    def start(self, context: ConnectorContext, config: Config) -> None:
        """Start slowly, or fail."""
        super().start(context, config)
        time.sleep(SLOW_S)
        if (Path(config["directory"]) / "broken").exists():
            raise ValueError("the file broken exists")
        note(config["directory"], "connector started")

    def task_configs(self, most_tasks: int) -> Sequence[Config]:
        """Return one task."""
        del most_tasks
        return [{"directory": self.config["directory"]}]

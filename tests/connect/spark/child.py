"""A worker with several Spark connectors that kills itself after each of them has finished a micro-batch.

python -m tests.connect.spark.child JSON
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

from ottla.connect.runtime import TaskId
from ottla.connect.worker.steps import Step
from ottla.testing.connect import ConnectWorker

LONGEST_S = 100.0


class Killer:
    """Waits for the first micro-batch of each connector."""

    def __init__(self, names: list[str]) -> None:
        self._waiting = set(names)

    def reached(self, step: Step, task: TaskId) -> None:
        if step is Step.AFTER_COMMIT:
            self._waiting.discard(task.connector)
            if not self._waiting:
                os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    bootstrap, settings, configs = json.loads(sys.argv[1])
    worker = ConnectWorker(bootstrap, settings, Killer([each["name"] for each in configs]).reached)
    for config in configs:
        worker.start(config)
    time.sleep(LONGEST_S)


if __name__ == "__main__":
    main()

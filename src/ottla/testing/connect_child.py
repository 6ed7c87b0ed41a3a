"""The process of a `ConnectProcess`: runs one connector until it is killed, or its parent ends.

python -m ottla.testing.connect_child JSON
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

from ottla.connect.runtime import TaskId
from ottla.connect.worker.steps import Step
from ottla.testing.connect import ConnectWorker


class Killer:
    """Kills this process at a step."""

    def __init__(self, step: str, times: int) -> None:
        self._step = Step(step)
        self._left = times
        self._lock = threading.Lock()

    def reached(self, step: Step, task: TaskId) -> None:
        """Count a step."""
        del task
        if step is not self._step:
            return
        with self._lock:
            self._left -= 1
            if self._left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run one connector."""
    settings, config, kill = json.loads(sys.argv[1])
    bootstrap = settings.pop("bootstrap.servers")
    worker = ConnectWorker(bootstrap, settings, Killer(*kill).reached) if kill else ConnectWorker(bootstrap, settings)
    worker.start(config)
    sys.stdin.read()  # until the parent ends or closes it
    worker.close()


if __name__ == "__main__":
    main()

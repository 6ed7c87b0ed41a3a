"""A Connect worker with one connector as a process: python -m tests.connect.worker_process FILE.

The file has JSON: the settings of the worker, and the configuration of the connector. The process runs until it is
killed.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
from pathlib import Path

from ottla.common.garbage import search_less
from ottla.testing.connect import ConnectWorker


def main() -> None:
    """Run the connector."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    given = json.loads(Path(sys.argv[1]).read_text())
    worker_settings = dict(given["worker"])
    bootstrap = worker_settings.pop("bootstrap.servers")
    with ConnectWorker(bootstrap, worker_settings) as worker:
        worker.start(given["connector"])
        search_less()
        print("started", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()

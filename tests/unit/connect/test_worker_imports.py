"""A worker imports only what it needs at its start: each package takes memory for as long as the worker runs."""

from __future__ import annotations

import subprocess
import sys

# rich and trio are imported by httpx, where they are installed.
UNUSED = ("httpx", "rich", "trio", "ottla.log", "ottla.broker", "pyarrow", "pyspark", "psycopg", "google.protobuf")
PROGRAM = f"""
import sys
import ottla.cli.connectors, ottla.connect.distributed, ottla.connect.standalone, ottla.web.server
import ottla.connect.connectors.file_stream, ottla.connect.worker.runtime
print(*[name for name in {UNUSED!r} if name in sys.modules])
"""


def test_worker_does_not_import_packages_that_only_some_workers_need() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []

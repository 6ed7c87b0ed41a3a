"""Tuning of Spark's Python workers: garbage collection, and acknowledgements on their connections."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys

import pytest

from ottla.spark import workers

SETTLED = """
import gc
from ottla.spark.workers import tune_worker
for _ in range(2):
    tune_worker()
    print(gc.get_freeze_count())
import decimal, xml.dom.minidom
tune_worker()
print(gc.get_freeze_count(), len(gc.get_objects()))
"""


def frozen(**environment: str) -> list[int]:
    """Count frozen objects after tune_worker(), after a second call, and after an import; and the other objects."""
    own = {name: value for name, value in os.environ.items() if name != "SPARK_REUSE_WORKER"}
    command = [sys.executable, "-c", SETTLED]
    ran = subprocess.run(command, env=own | environment, capture_output=True, text=True, timeout=30, check=True)
    return [int(word) for word in ran.stdout.split()]


def test_garbage_collector_of_a_worker_skips_modules() -> None:
    first, again, more, others = frozen(SPARK_REUSE_WORKER="1")
    assert first > 1_000
    assert again == pytest.approx(first, rel=0.01)
    assert more > again + 100
    assert others < 500


MEMORY = """
import resource
from ottla.spark.workers import tune_worker
tune_worker()
for _ in range(4):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    kept = [b"x" * 500_000 for _ in range(40)]
    del kept
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(**environment: str) -> int:
    """Count the page faults of a task that allocates and frees 20 MB, after three such tasks."""
    command, worker = [sys.executable, "-c", MEMORY], os.environ | {"SPARK_REUSE_WORKER": "1"} | environment
    return int(subprocess.run(command, env=worker, capture_output=True, text=True, timeout=30, check=True).stdout)


@pytest.mark.skipif("glibc" not in platform.libc_ver(), reason="mallopt is glibc's")
def test_a_worker_keeps_its_memory_for_the_next_task() -> None:
    assert page_faults() < 1_000
    assert page_faults(MALLOC_TRIM_THRESHOLD_="131072") > 4_000  # the user's setting stays


TASK = """
import gc, pickle
from pyspark.sql.types import BinaryType, StructField, StructType
from ottla.spark.options import read_sink_options
from ottla.spark.sink import StreamWriter
options = read_sink_options({"kafka.bootstrap.servers": "localhost:9", "topic": "t", "exactlyOnce": "true"})
sent = pickle.dumps(StreamWriter(options, StructType([StructField("value", BinaryType())])))
gc.unfreeze()
pickle.loads(sent)
import ottla.spark.transactional_writer
writer = pickle.loads(sent)
print(gc.get_freeze_count(), len(gc.get_objects()))
"""


def test_garbage_collector_skips_modules_in_tasks_of_a_sink() -> None:
    command, worker = [sys.executable, "-c", TASK], os.environ | {"SPARK_REUSE_WORKER": "1"}
    ran = subprocess.run(command, env=worker, capture_output=True, text=True, timeout=60, check=True)
    skipped, others = map(int, ran.stdout.split())
    assert skipped > 10_000
    assert others < 500


def test_processes_that_are_not_workers_are_unchanged() -> None:
    assert frozen()[:3] == [0, 0, 0]


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="Linux only")
def test_connections_within_the_machine_acknowledge_at_once() -> None:
    quick = socket.IPPROTO_TCP, socket.TCP_QUICKACK
    before = workers.acknowledge_at_once()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as near:
        far, _ = server.accept()
        with far:
            for _ in range(100):  # the kernel detects an interactive exchange and delays acknowledgements
                near.sendall(b"?")
                far.recv(1)
                far.sendall(b"!")
                near.recv(1)
            assert not far.getsockopt(*quick)
            assert workers.acknowledge_at_once() == before + 2
            assert far.getsockopt(*quick)
            assert far.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert workers.acknowledge_at_once() == before

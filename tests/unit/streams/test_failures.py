"""The reason of a failed query and whether to restart it, from the text of Spark's exception."""

from __future__ import annotations

import pytest

from ottla.streams import failures
from ottla.streams.failures import Failure, Restarts, classify, classify_exception, text_of

INVALID = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure: Task 0
failed 1 times: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/ottla/spark/formats.py", line 108, in decode
ottla.spark.formats.FormatError: Topic 'a', partition 0, offset 7: the value's field x is not a number.
\tat org.apache.spark.api.python.BasePythonRunner
"""
UNAVAILABLE = """org.apache.spark.api.python.PythonException: Traceback (most recent call last):
ottla.clients.errors.BrokerUnavailable: no broker can be reached: 127.0.0.1:1: refused

The above exception was the direct cause of the following exception:

ottla.spark.cluster.ClusterError: Asking 127.0.0.1:1 for the offsets failed
"""
PORT = (
    "org.apache.spark.SparkException: EOFException occurred while reading the port number from pyspark.daemon's stdout"
)


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        (INVALID, "data", "Topic 'a', partition 0, offset 7: the value's field x is not a number."),
        (UNAVAILABLE, "retriable", "no broker can be reached: 127.0.0.1:1: refused"),
        (f"{UNAVAILABLE}\n{INVALID}", "data", "Topic 'a', partition 0, offset 7: the value's field x is not a number."),
        ("a\nottla.spark.sink.WriteFailed: Topic 'a': no response", "retriable", "Topic 'a': no response"),
        (
            "ottla.clients.errors.TopicAuthorizationFailed: no\n\nottla.spark.sink.WriteFailed: Topic 'a': no",
            "program",
            "no",
        ),
        ("x\nExecutorLostFailure (executor 1 exited)\n", "retriable", "ExecutorLostFailure (executor 1 exited)"),
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: null SQLSTATE: XXKST\n=== Streaming Query ===",
            "retriable",
            "a Python process of Spark's driver has ended",
        ),
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception:  SQLSTATE: XXKST (no cause message)\n===",
            "retriable",
            "a Python process of Spark's driver has ended",
        ),
        (
            "Job aborted: Lost task 0.0 in stage 9.0: java.io.IOException: Broken pipe\n\tat x\njava.io.IOException: x",
            "retriable",
            "a process has ended, or the network failed: Broken pipe",
        ),
        (
            'Cannot run program "chmod": error=0, Failed to exec spawn helper: pid: 7, signal: 9\n=== Streaming Query',
            "retriable",
            'Cannot run program "chmod": error=0, Failed to exec spawn helper: pid: 7, signal: 9',
        ),
        ("Broken pipe\n\nJVM stacktrace", "retriable", "a process has ended, or the network failed: Broken pipe"),
        ("Stream closed\n\nJVM stacktrace", "retriable", "a process has ended, or the network failed: Stream closed"),
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: Connection reset by peer SQLSTATE: XXKST",
            "retriable",
            "a process has ended, or the network failed: Connection reset",
        ),
        (
            "Job aborted\nZeroDivisionError: by zero\nCaused by: java.net.SocketException: Connection reset",
            "program",
            "ZeroDivisionError: by zero",
        ),
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: x\njava.io.IOException: No space left on device",
            "retriable",
            "Java could not read or write: java.io.IOException: No space left on device",
        ),
        (
            "Job aborted: Lost task 0.0 in stage 9.0: java.nio.channels.ClosedChannelException\n\tat java.base",
            "retriable",
            "Java could not read or write: java.nio.channels.ClosedChannelException",
        ),
        (
            "Lost task 0.0 in stage 9.0: java.net.SocketTimeoutException: Accept timed out\n\tat java.base",
            "retriable",
            "Java could not read or write: java.net.SocketTimeoutException: Accept timed out",
        ),
        (
            'java.io.IOException: Cannot run program "/venv/bin/python": error=2',
            "program",
            'java.io.IOException: Cannot run program "/venv/bin/python": error=2',
        ),
        ("java.io.EOFException\n\tat java.base", "retriable", "java.io.EOFException"),
        ("py4j.protocol.Py4JJavaError: x: java.lang.InterruptedException", "retriable",
         "py4j.protocol.Py4JJavaError: x: java.lang.InterruptedException"),
        (f"{PORT}.\n\tat org.apache.spark", "retriable", f"{PORT}."),
        ("File x\nZeroDivisionError: by zero\n\tat y", "program", "ZeroDivisionError: by zero"),
        ("[UNRESOLVED_COLUMN] No column `x`\nmore", "program", "[UNRESOLVED_COLUMN] No column `x`"),
        ("", "program", "no reason was given"),
    ],
)  # fmt: skip
def test_reason_of_a_failure(text: str, kind: str, reason: str) -> None:
    assert (classify(text).kind, classify(text).reason) == (kind, reason)
    assert classify(text).is_retriable == (kind == "retriable")


def test_delays_grow_up_to_a_limit_and_restarts_end() -> None:
    restarts, delays = Restarts(), []
    while not restarts.are_over:
        delays.append(restarts.delay_s)
        restarts = restarts.one_more()
    assert delays[:4] == [1, 2, 4, 8]
    assert delays[-1] == failures.LONGEST_DELAY_S
    assert len(delays) == failures.MOST_RESTARTS


class Captured(Exception):
    """An exception as pyspark has it."""

    def __init__(self, text: str, cause: Exception | None = None) -> None:
        super().__init__(text)
        self._cause = cause


class FromJava(Exception):
    """A Java exception that pyspark has no class for, as py4j has it."""

    java_exception = "a reference"


def test_text_of_a_java_exception_begins_with_its_class() -> None:
    ended = FromJava(
        "An error occurred while calling o91.load.\n: java.net.SocketException: Broken pipe\n\tat java.base"
    )
    assert text_of(ended) == "java.net.SocketException: Broken pipe\n\tat java.base"
    assert classify_exception(ended).is_retriable
    wrong = FromJava("An error occurred while calling o91.load.\n: java.lang.IllegalStateException: x\n\tat java.base")
    assert classify_exception(wrong) == Failure("program", "java.lang.IllegalStateException: x")


def test_failure_is_that_before_a_write_that_could_not_be_aborted() -> None:
    """A worker was killed, and then the process that aborts the write, too."""
    failed = Captured("Writing job failed.", Captured(UNAVAILABLE, Captured("java.net.SocketException")))
    ended = Captured("Writing job failed.\n=== Streaming Query ===", failed)
    assert classify(text_of(ended)).kind == "retriable"
    assert text_of(Captured(INVALID, failed)) == INVALID
    assert text_of(Captured("Writing job failed.")) == "Writing job failed."

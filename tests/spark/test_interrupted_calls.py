"""Java calls after one that an exception of a signal handler has interrupted."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests import deadlines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Interrupted(BaseException):
    """As pytest-timeout raises it."""


def test_next_call_neither_waits_for_the_interrupted_one_nor_takes_its_answer(spark: SparkSession) -> None:
    def interrupt(*_: object) -> None:
        raise Interrupted

    jvm: Any = spark._jvm
    before = signal.signal(signal.SIGUSR1, interrupt)
    interrupting = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        interrupting.start()
        began_s = time.monotonic()
        with pytest.raises(Interrupted):
            jvm.java.lang.Thread.sleep(20_000)
        assert jvm.java.lang.Math.abs(-7) == 7
        assert spark.range(3).count() == 3
        assert time.monotonic() - began_s < 15
    finally:
        deadlines.join(interrupting, "the signal")
        signal.signal(signal.SIGUSR1, before)

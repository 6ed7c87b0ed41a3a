"""The exceptions that calls of Spark raise. If Java has ended, they raise others: Py4JError and OSError."""

from __future__ import annotations

from typing import Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped,unused-ignore]
from pyspark.errors import PySparkException

SPARK_ERRORS: Final = (PySparkException, Py4JJavaError)
"""Those that pyspark has a class for, and all other exceptions of Java, such as that of a process that was killed."""

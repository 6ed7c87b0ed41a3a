"""The exceptions that Spark calls raise (pyspark 4.2 to 4.3, py4j 0.10.9.9)."""

from __future__ import annotations

from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped,unused-ignore]
from pyspark.errors import PySparkException

SPARK_ERRORS: Final = (PySparkException, Py4JJavaError)
"""Exceptions that pyspark has a class for, and all other Java exceptions, such as after a process was killed."""
JAVA_ERRORS: Final = (Py4JError, OSError)
"""Exceptions of a call after Java has ended, or of a name that Java does not have; includes `Py4JJavaError`."""
JAVA_EXCEPTION: Final = Py4JJavaError
"""A Java exception that pyspark has no class for."""

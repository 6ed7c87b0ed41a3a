"""The texts of exceptions that Spark calls raise. Does not import Spark."""

from __future__ import annotations


def java_text(error: BaseException) -> str | None:
    """Return class, message and trace of a Java exception that pyspark has no class for; None for other exceptions.

    Uses `Py4JJavaError.java_exception` by its name, and the form of its text (pyspark 4.2 to 4.3).
    """
    if not hasattr(error, "java_exception"):
        return None
    return str(error).partition("\n: ")[2] or str(error)


def first_line(error: BaseException) -> str:
    """Return the first line of a Java or Python exception.

    Uses `Py4JJavaError.java_exception` by its name (pyspark 4.2 to 4.3).
    """
    return str(getattr(error, "java_exception", error)).splitlines()[0]


def cause_of(error: BaseException) -> Exception | None:
    """Return the cause of an exception that pyspark has converted from Java.

    Uses `CapturedException._cause` (pyspark 4.2 to 4.3).
    """
    cause = getattr(error, "_cause", None)
    return cause if isinstance(cause, Exception) else None

"""Why a query failed, from the text of Spark's exception; and when to restart it. Without I/O, clock or Spark.

Spark reports an exception of a task as text, with Python's and Java's tracebacks. The names of exceptions in it decide:
an invalid record or a wrong program fails again, an unavailable broker or a lost worker may be back soon. Unknown
exceptions come from the program, so that a restart would not help.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from ottla.spark.internals.exceptions import cause_of, java_text

Kind = Literal["data", "program", "retriable"]

_DATA: Final = frozenset({"FormatError"})
_PROGRAM: Final = frozenset(
    {
        "ConfigurationError", "DataLossError", "ExactlyOnceError", "MessageTooLarge", "NotAuthorized", "OptionError",
        "AuthenticationFailed", "ClusterAuthorizationFailed", "GroupAuthorizationFailed", "SinkError", "StreamsError",
        "TableError", "TlsFailed", "TopicAuthorizationFailed", "TransactionalIdAuthorizationFailed",
        "UnknownTopicOrPartition", "UnsupportedByBroker", "UnsupportedMechanism",
    }
)  # fmt: skip
_RETRIABLE: Final = frozenset(
    {
        "BrokerError", "BrokerUnavailable", "BufferExhausted", "ClusterError", "CommitError", "ConnectionLost",
        "DeliveryTimedOut", "InvalidProducerEpoch", "NotEnoughReplicas", "OutOfOrderSequence", "ProducerFenced",
        "ProducerUnusable", "RequestTimedOut", "TemporaryError", "TransactionAborted", "TransactionFailed",
        "UnknownProducerId", "WriteFailed",
    }
)  # fmt: skip
_OURS: Final = re.compile(r"(?:^|[\s(])ottla\.[\w.]+\.(\w+): ([^\n]*)")
_SPARKS: Final = re.compile(
    r"[^\n]*(?:ExecutorLostFailure|FetchFailedException|worker node lost"
    r"|Python worker (?:exited unexpectedly|failed to connect back)|\bEOFException\b"
    r"|Failed to exec spawn helper|java\.lang\.InterruptedException)[^\n]*"
)
_WITHOUT_MESSAGE: Final = ("terminated with exception: null", "(no cause message)")
"""A Python process that plans batches has ended: Spark fails with EOFException, and the text has no name of it."""
_PYTHONS: Final = re.compile(r"^(?:[\w.]+\.)?\w+(?:Error|Exception|Failed)\b: [^\n]*$", re.MULTILINE)
_CUT_OFF: Final = re.compile(
    r"(?:^|terminated with exception: |java\.(?:io\.IO|net\.Socket)Exception: )"
    r"(Broken pipe|Connection reset|Stream closed)",
    re.MULTILINE,
)
"""Spark wrote to a Python process that was killed, or the network failed."""
_INPUT_OUTPUT: Final = re.compile(
    r"java\.(?:io\.IO|net\.(?:Socket|SocketTimeout|Connect)|nio\.channels\.\w+)Exception"
    r"(?::(?! Cannot run program) [^\n]+|$)",
    re.MULTILINE,
)
"""The same with another text, or a full disk: a later attempt may find a process or space."""
_JAVAS: Final = ("java.", "org.", "scala.", "py4j.", "pyspark.errors.")
_NOT_ABORTED: Final = "Writing job failed"
_LONGEST: Final = 500

FIRST_DELAY_S: Final = 1.0
LONGEST_DELAY_S: Final = 60.0
MOST_RESTARTS: Final = 20
"""Restarts in a row without a finished micro-batch; with the delays, about 15 minutes."""


@dataclass(frozen=True)
class Failure:
    """The reason in one line, and whether a restart may help."""

    kind: Kind
    reason: str

    @property
    def is_retriable(self) -> bool:
        """Whether the same program may succeed on the same records."""
        return self.kind == "retriable"


def classify(text: str) -> Failure:
    """Return the failure that the text of an exception describes."""
    named = [(match[1], match[2].strip()) for match in _OURS.finditer(text)]
    kinds: tuple[tuple[Kind, frozenset[str]], ...] = (("data", _DATA), ("program", _PROGRAM), ("retriable", _RETRIABLE))
    for kind, names in kinds:
        reason = next((problem for name, problem in named if name in names), None)
        if reason is not None:
            return Failure(kind, _short(reason))
    lost = _SPARKS.search(text)
    if lost is not None:
        return Failure("retriable", _short(lost.group().strip()))
    raised = _PYTHONS.findall(text)
    if not raised and any(each in text for each in _WITHOUT_MESSAGE):
        return Failure("retriable", "a Python process of Spark's driver has ended")
    cut_off = _CUT_OFF.search(text)
    # A worker whose function raised an exception closes its connection, too.
    if all(each.startswith(_JAVAS) for each in raised):
        if cut_off is not None:
            return Failure("retriable", f"a process has ended, or the network failed: {cut_off[1]}")
        failed = _INPUT_OUTPUT.search(text)
        if failed is not None:
            return Failure("retriable", _short(f"Java could not read or write: {failed[0]}"))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return Failure("program", _short(raised[-1] if raised else lines[0] if lines else "no reason was given"))


def text_of(error: Exception) -> str:
    """Return the text of a Spark exception; if Spark could not abort a write after a failure, the text of the failure.

    Then the exception says only that, and the failure is its cause. The text of a Java exception that pyspark does not
    know begins with the class, and has Java's trace.
    """
    text, cause = java_text(error), cause_of(error)
    if text is not None:
        return text
    is_abort = _NOT_ABORTED in str(error).partition("\n")[0]
    return text_of(cause) if is_abort and cause is not None else str(error)


def classify_exception(error: Exception) -> Failure:
    """Return the failure that an exception of this process describes; of a group, a failure that is not retriable."""
    if isinstance(error, ExceptionGroup):
        return min(map(classify_exception, error.exceptions), key=lambda each: each.is_retriable)
    kind = type(error)
    return classify(java_text(error) or f"{kind.__module__}.{kind.__name__}: {error}")


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


@dataclass(frozen=True)
class Restarts:
    """The restarts of one query since its last finished micro-batch."""

    count: int = 0

    @property
    def are_over(self) -> bool:
        """Whether the query may not be restarted any more."""
        return self.count >= MOST_RESTARTS

    @property
    def delay_s(self) -> float:
        """How long to wait before the next restart."""
        return min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0 ** min(self.count, 16))

    def one_more(self) -> Restarts:
        """The restarts after one more."""
        return Restarts(self.count + 1)

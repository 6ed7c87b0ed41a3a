"""Which errors of a task pass, how long to wait before the next start, and the trace of an error."""

from __future__ import annotations

import traceback
from typing import Final, NoReturn

from ottla.clients.errors import (
    AuthenticationFailed,
    ClientError,
    DeliveryTimedOut,
    InvalidProducerEpoch,
    ProducerFenced,
    ProducerUnusable,
    TransactionFailed,
)
from ottla.connect.errors import ConnectError, RetriableError
from ottla.connect.worker.providers import Secrets

FIRST_DELAY_MS: Final = {"kafka": 500, "connector": 1_000, "credentials": 2_000}
"""The pause before the first try again, by the kind of failure. It doubles with each try."""
MAX_DELAY_MS: Final = 60_000
MAX_TRACE: Final = 100_000
"""How many characters of a trace are kept."""


def retriable_kind(error: BaseException, *, rereads: bool = False) -> str | None:
    """Return the kind of a failure that passes: kafka, connector or credentials; None for one that does not.

    `rereads`: whether the credentials of the clients are variables, whose values may change.
    """
    if rereads and isinstance(error, AuthenticationFailed):
        return "credentials"
    if isinstance(error, RetriableError):
        return "connector"
    if isinstance(error, (DeliveryTimedOut, ProducerFenced, InvalidProducerEpoch)):
        # A record without an outcome is sent again from the last offset. A fenced producer may have been too slow:
        # `check_task` stops the task if another one has taken its place.
        return "kafka"
    if isinstance(error, (TransactionFailed, ProducerUnusable)):
        cause = error.__cause__
        return "kafka" if cause is None else retriable_kind(cause, rereads=rereads)
    if isinstance(error, ClientError):
        return "kafka" if getattr(error, "retriable", False) else None
    return None


def delay_ms(kind: str, tried: int) -> int:
    """Return the pause before a try: it doubles, up to a minute."""
    return min(MAX_DELAY_MS, FIRST_DELAY_MS[kind] << min(tried - 1, 16))


def raise_without_secrets(error: Exception, secrets: Secrets) -> NoReturn:
    """Raise the error again as ConnectError: of its own class, and without causes if one of them shows a secret."""
    text = "".join(traceback.format_exception(error))
    if not isinstance(error, ConnectError):
        raise ConnectError(f"{type(error).__name__}: {secrets.hide(str(error))}") from (
            error if secrets.hide(text) == text else None
        )
    if secrets.hide(text) == text:
        raise error
    made = type(error).__new__(type(error))
    made.__dict__.update(error.__dict__)
    made.args = (secrets.hide(str(error)),)
    raise made from None


def trace_of(error: BaseException, secrets: Secrets) -> str:
    """Return the error as the REST API shows it: the message first, then the stack and the causes, without secrets."""
    head = f"{type(error).__module__}.{type(error).__qualname__}: {error}"
    stack = "".join(traceback.format_exception(error))
    text = secrets.hide(f"{head}\n{stack}")
    if len(text) <= MAX_TRACE:
        return text
    # A status must fit into a record. The error is at the beginning and at the end.
    left_out = len(text) - MAX_TRACE
    return f"{text[: MAX_TRACE // 2]}\n... {left_out} more characters ...\n{text[-MAX_TRACE // 2 :]}"

"""Regular expressions of clients, in RE2's syntax, whose cost is linear in the length of the text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ottla.common.errors import ErrorCode, KafkaError

Matcher: TypeAlias = Callable[[str], object]
"""Returns a true value if the expression matches the whole text."""

LONGEST_EXPRESSION = 4_096


def compile_expression(regex: str, field: str) -> Matcher:
    """Compile the regular expression in a request's field; raises INVALID_REGULAR_EXPRESSION."""
    import re2  # 10 ms and 5 MB, which most brokers never need

    if len(regex) > LONGEST_EXPRESSION:
        problem = f"it has {len(regex)} characters, at most {LONGEST_EXPRESSION} are allowed"
    else:
        try:
            options = re2.Options()
            options.log_errors = False
            fullmatch: Matcher = re2.compile(regex, options).fullmatch
        except re2.error as error:
            detail = error.args[0] if error.args else error
            problem = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
        else:
            return fullmatch
    message = f"{field} `{regex[:200]}` is not a valid regular expression: {problem}."
    raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message)

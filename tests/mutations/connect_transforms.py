"""Rows of the table of mutations for Connect's transformations."""

from __future__ import annotations

Row = tuple[str, str, str, str, tuple[str, ...]]

TESTS = "tests/unit/connect/transforms/test_functions.py"

ROWS: tuple[Row, ...] = (
    (
        "SQL expressions of a connector cannot open files or load extensions",
        "connect/transforms/functions.py",
        "        self._database.set_authorizer(_authorized)\n",
        "",
        (f"{TESTS}::test_other_statements_than_expressions_are_refused",),
    ),
    (
        "a long SQL expression is interrupted",
        "connect/transforms/functions.py",
        "        self._deadline = time.monotonic() + _LIMIT_S\n",
        "        self._deadline = time.monotonic() + 600\n",
        (f"{TESTS}::test_long_expression_is_interrupted",),
    ),
    (
        "an error of a user's function is an error of the record",
        "connect/transforms/functions.py",
        '            raise DataError(f"{self._name} failed: {type(error).__name__}: {error}") from error\n',
        "            raise\n",
        (f"{TESTS}::test_errors_of_a_function_are_errors_of_the_record",),
    ),
)

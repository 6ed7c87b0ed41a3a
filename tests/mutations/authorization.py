"""Rows of the table of mutations for authorization: each check of a right in the source, taken out.

The checks are the calls of `CHECKS` below `broker/`. A call is replaced by what it returns to a client with all rights.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src/ottla"
TABLE = "tests/unit/broker/test_authorization_table.py::test_api_needs_its_rights_and_no_others"
EFFECTS = "tests/unit/broker/test_authorization_effects.py"
# What a check returns if everything is allowed; "names" stands for its fifth argument.
CHECKS = {
    "allowed": "True",
    "allowed_on_cluster": "True",
    "allowed_by_type": "True",
    "allowed_names": "set(names)",
    "check_authorized": "None",
    "refused": "None",
    "_check": "None",
    "_hidden_topics": "frozenset()",
    "denied_topics": "frozenset()",
}
# The definition of checks, and files with rows of their own.
OMITTED = (
    "broker/authorization.py",
    "broker/config_alteration.py",
    "broker/loggers.py",
    "broker/handlers/create_delegation_token.py",
    "broker/handlers/describe_delegation_token.py",
)
OTHER_TESTS = {
    "handlers/consumer_group_heartbeat 2": "test_regular_expression_matches_only_topics_that_the_member_may_describe",
    "handlers/delete_topics 2": "test_topic_id_shows_no_name",
    "handlers/describe_transactions 2": "test_description_of_a_transaction_omits_hidden_topics",
    "handlers/streams_group_heartbeat 3": "test_streams_member_that_may_not_create_topics_reports_it",
    "handlers/streams_group_heartbeat 4": "test_streams_member_that_may_not_create_topics_reports_it",
    "operations 1": "test_authorized_operations_belong_to_the_client",
}
"""Checks that another test finds, by file and number."""

Row = tuple[str, str, str, str, tuple[str, ...]]


def rows() -> Iterator[Row]:
    """(protection, path, old, new, tests) of each check."""
    for file in sorted((SOURCE / "broker").rglob("*.py")):
        path = str(file.relative_to(SOURCE))
        if path not in OMITTED:
            yield from _rows_of(path, file.read_text())


def _rows_of(path: str, text: str) -> Iterator[Row]:
    # Most files have no check. Each worker that collects the tests reads this table.
    if not any(name in text for name in CHECKS):
        return
    calls = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CHECKS
    ]
    for number, call in enumerate(sorted(calls, key=lambda node: (node.lineno, node.col_offset)), 1):
        start, end = _offset(text, call.lineno, call.col_offset), _offset(text, call.end_lineno, call.end_col_offset)
        assert isinstance(call.func, ast.Name)
        replacement = CHECKS[call.func.id]
        if "names" in replacement:
            replacement = replacement.replace("names", str(ast.get_source_segment(text, call.args[4])))
        # The lines before the call, as many as make the text unique.
        first = start
        while text.count(text[first:end]) > 1:
            first = text.rindex("\n", 0, first - 1)
        name = f"{path.removeprefix('broker/').removesuffix('.py')} {number}"
        test = OTHER_TESTS.get(name)
        tests = (TABLE,) if test is None else (f"{EFFECTS}::{test}",)
        protection = f"Requests without a right are refused: {name}"
        yield protection, path, text[first:end], text[first:start] + replacement, tests


def _offset(text: str, line: int | None, column: int | None) -> int:
    assert line is not None
    assert column is not None
    lines = text.splitlines(keepends=True)
    return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())

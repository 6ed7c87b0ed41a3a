"""The table of protections that `make mutations` takes out stays true: source, tests, and every promise in it."""

import ast
import contextlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.mutations.table import MUTATIONS, Mutation
from tests.sources import functions_of

# One process parses the files for all of them.
pytestmark = pytest.mark.xdist_group("sources")
ROOT = Path(__file__).parents[2]


@cache
def text_of(path: str) -> str:
    return (ROOT / path).read_text()


@cache
def parsed_together() -> frozenset[Mutation]:
    """Return the rows without whose code, all at once, their files can be parsed.

    Files have up to 14 rows. A row that is not here is parsed alone.
    """
    changed: dict[str, str] = {}
    rows: dict[str, list[Mutation]] = {}
    for mutation in MUTATIONS:
        source = changed.get(mutation.path) or text_of(f"src/ottla/{mutation.path}")
        if source.count(mutation.old) == 1:
            changed[mutation.path] = source.replace(mutation.old, mutation.new)
            rows.setdefault(mutation.path, []).append(mutation)
    parsed: set[Mutation] = set()
    for path, source in changed.items():
        with contextlib.suppress(SyntaxError):
            ast.parse(source)
            parsed.update(rows[path])
    return frozenset(parsed)


def problem_of(mutation: Mutation) -> str | None:
    """Return why the protection cannot be taken out, or why no test would fail then; None if the row is right."""
    source = text_of(f"src/ottla/{mutation.path}")
    if source.count(mutation.old) != 1:
        return f"{mutation.path} has the code {source.count(mutation.old)} times"
    changed = source.replace(mutation.old, mutation.new)
    if changed == source:
        return "the source is the same without it"
    try:
        if mutation not in parsed_together():
            ast.parse(changed)
    except SyntaxError as error:
        return f"{mutation.path} without it: {error}"
    for test in mutation.tests:
        path, _, name = test.partition("[")[0].partition("::")
        if name not in functions_of(ROOT / path):
            return f"{test} does not exist"
    return None if mutation.tests else "no test must fail"


def test_what_is_taken_out_is_in_the_source_once_and_its_tests_exist() -> None:
    """One test for all rows: a test for each would cost more than the check of the row."""
    problems = {mutation.protection: problem for mutation in MUTATIONS if (problem := problem_of(mutation))}
    assert not problems, "change tests/mutations/table.py with the source and the tests"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"old": "this is not in the source"}, "has the code 0 times"),
        ({"old": "\n"}, "times"),
        ({"new": MUTATIONS[0].old}, "the same without it"),
        ({"new": "("}, "without it: "),
        ({"tests": ()}, "no test must fail"),
        ({"tests": ("tests/unit/test_mutations_table.py::test_nothing",)}, "test_nothing does not exist"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_row_that_is_wrong_is_reported(changes: dict[str, Any], problem: str) -> None:
    assert problem_of(MUTATIONS[0]) is None
    assert problem in (problem_of(MUTATIONS[0]._replace(**changes)) or "")


def test_every_promise_has_a_protection_that_was_taken_out() -> None:
    promises = set(
        re.findall(r"`(tests/[\w/]+\.py::test_\w+)` \|$", (ROOT / "docs/reliability.md").read_text(), re.MULTILINE)
    )
    taken_out = {test.partition("[")[0] for mutation in MUTATIONS for test in mutation.tests}
    assert not promises - taken_out, "a test that was never seen to fail proves nothing"

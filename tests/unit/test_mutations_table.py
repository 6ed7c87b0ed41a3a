"""The table of protections that `make mutations` takes out stays true: source, tests, and every promise in it."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.mutations.table import MUTATIONS, Mutation

# One process parses the files for all of them.
pytestmark = pytest.mark.xdist_group("sources")
ROOT = Path(__file__).parents[2]


@cache
def functions_of(path: str) -> set[str]:
    """The functions of a module."""
    return {node.name for node in ast.parse((ROOT / path).read_text()).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.protection)
def test_what_is_taken_out_is_in_the_source_once(mutation: Mutation) -> None:
    source = (ROOT / "src/ottla" / mutation.path).read_text()
    assert source.count(mutation.old) == 1, "change tests/mutations/table.py with the source"
    changed = source.replace(mutation.old, mutation.new)
    assert changed != source
    ast.parse(changed)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.protection)
def test_the_tests_that_must_fail_are_there(mutation: Mutation) -> None:
    assert mutation.tests
    for test in mutation.tests:
        path, _, name = test.partition("[")[0].partition("::")
        assert name in functions_of(path)


def test_every_promise_has_a_protection_that_was_taken_out() -> None:
    promises = set(
        re.findall(r"`(tests/[\w/]+\.py::test_\w+)` \|$", (ROOT / "docs/reliability.md").read_text(), re.MULTILINE)
    )
    taken_out = {test.partition("[")[0] for mutation in MUTATIONS for test in mutation.tests}
    assert not promises - taken_out, "a test that was never seen to fail proves nothing"

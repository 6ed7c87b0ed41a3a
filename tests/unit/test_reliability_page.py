"""Each promise of docs/reliability.md names a test that exists."""

import re
from pathlib import Path

import pytest

from tests.sources import functions_of

# One process parses the files for all of them.
pytestmark = pytest.mark.xdist_group("sources")
ROOT = Path(__file__).parents[2]
HEADING = "| What happens | With | What holds | Proved by |"


def test_each_promise_names_a_test_that_exists() -> None:
    promised = (ROOT / "docs/reliability.md").read_text().partition("\n## ")[0]
    promises = [line for line in promised.splitlines() if line.startswith("| ") and line != HEADING]
    assert len(promises) > 10
    for row in promises:
        named = re.search(r"`(tests/[\w/]+\.py)::(test_\w+)` \|$", row)
        assert named is not None, f"no test is named: {row}"
        assert named[2] in functions_of(ROOT / named[1]), f"{named[1]} has no {named[2]}"

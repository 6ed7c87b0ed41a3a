"""The examples of the pages on streams: each contains a pipeline and its test."""

from __future__ import annotations

import inspect
import re
import traceback
from pathlib import Path
from typing import Any

import pytest

from .conftest import Start

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / f"{name}.md" for name in ("streams", "streams-state", "streams-joins", "streams-processors")]
EXAMPLES = [
    (page, example)
    for page in PAGES
    for example in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
]


def functions_of(page: Path, example: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(example, str(page), "exec", flags=0, dont_inherit=True), names)
    return {name: found for name, found in names.items() if name.startswith("test_") and inspect.isfunction(found)}


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example_of_the_page(number: int, ottla_streams: Start) -> None:
    page, example = EXAMPLES[number]
    found = functions_of(page, example)
    assert len(found) == 1
    for test in found.values():
        try:
            test(ottla_streams)
        except AssertionError as error:
            line = traceback.extract_tb(error.__traceback__)[-1].lineno or 1
            pytest.fail(f"{example.splitlines()[line - 1].strip()}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_has_examples(page: Path) -> None:
    assert [example for of, example in EXAMPLES if of == page]


def test_pages_for_users_of_other_frameworks_quote_the_guide() -> None:
    text = (DOCS / "streams-from-others.md").read_text()
    (program,) = re.findall(r"^```python notest\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert program in (DOCS / "streams.md").read_text()

"""The examples of docs/streams.md: each contains a pipeline and its test."""

from __future__ import annotations

import inspect
import re
import traceback
from pathlib import Path
from typing import Any

import pytest

from .conftest import Start

PAGE = Path(__file__).parents[2] / "docs" / "streams.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def functions_of(example: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(example, str(PAGE), "exec", flags=0, dont_inherit=True), names)
    return {name: found for name, found in names.items() if name.startswith("test_") and inspect.isfunction(found)}


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example_of_the_page(number: int, ottla_streams: Start) -> None:
    found = functions_of(EXAMPLES[number])
    assert len(found) == 1
    for test in found.values():
        try:
            test(ottla_streams)
        except AssertionError as error:
            line = traceback.extract_tb(error.__traceback__)[-1].lineno or 1
            pytest.fail(f"{EXAMPLES[number].splitlines()[line - 1].strip()}")


def test_page_has_examples() -> None:
    assert len(EXAMPLES) >= 4


def test_program_of_the_page_for_other_people_is_that_of_the_guide() -> None:
    text = PAGE.with_name("streams-from-others.md").read_text()
    (program,) = re.findall(r"^```python notest\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert program in PAGE.read_text()

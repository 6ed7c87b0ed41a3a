"""The examples of the producer's page run, and print the values in their comments."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import RunningBroker

PAGE = Path(__file__).parents[2] / "docs/clients-producer.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_page_has_all_examples() -> None:
    assert len(EXAMPLES) == 6


@pytest.mark.both
@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_examples_print_the_values_in_their_comments(
    broker: RunningBroker, number: int, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = EXAMPLES[number].replace('"flights"', repr(topic))
    exec(compile(source, f"{PAGE.name} example {number + 1}", "exec"), {"bootstrap": broker.bootstrap})
    promised = [line.replace("flights", topic) for line in re.findall(r"print\(.*\)  # (.*)", source)]
    assert capsys.readouterr().out.splitlines() == promised

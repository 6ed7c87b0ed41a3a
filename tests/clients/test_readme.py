"""The examples of the README, as a stranger would run them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import RunningBroker

README = Path(__file__).parents[2] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_examples_write_and_read(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(EXAMPLES) == 2
    for example in EXAMPLES:
        exec(compile(example.replace("127.0.0.1:9092", broker.bootstrap), str(README), "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "b'who' b'hello' 0"
    assert "greetings" in lines[-1]

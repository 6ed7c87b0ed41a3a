"""The examples of docs/testing.md run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .test_plugin import Run

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
SETTINGS = re.findall(r"^```ini\n\[pytest\]\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("place", ["thread", "process"])
def test_the_examples_of_the_page(tmp_path: Path, place: str) -> None:
    examples = [example for example in EXAMPLES if "ottla_cluster" not in example]
    assert len(examples) >= 6
    for number, example in enumerate(examples):
        (tmp_path / f"test_{number}.py").write_text(example)
    code, out = Run(tmp_path)("", f"--ottla={place}", "--timeout=20", *sorted(map(str, tmp_path.glob("test_?.py"))))
    assert code == 0, out


def test_the_example_with_a_cluster(tmp_path: Path) -> None:
    (example,) = [example for example in EXAMPLES if "ottla_cluster" in example]
    (tmp_path / "test_cluster.py").write_text(example)
    code, out = Run(tmp_path, timeout_s=110)("", "--timeout=100", str(tmp_path / "test_cluster.py"))
    assert code == 0, out


def test_the_settings_of_the_page(tmp_path: Path) -> None:
    assert len(SETTINGS) == 1
    code, out = Run(tmp_path)("def test_it(ottla): ottla.topic()", ini=SETTINGS[0])
    assert code == 0, out

"""Each scenario must produce the output in its file; `make scenarios` writes the output of this run."""

from __future__ import annotations

from pathlib import Path

import pytest

from .script import replay, scenarios


@pytest.mark.parametrize("path", scenarios(), ids=lambda path: path.stem)
def test_scenario_has_the_expected_effects(path: Path, tmp_path: Path) -> None:
    assert replay(path, tmp_path).splitlines() == path.read_text().splitlines()

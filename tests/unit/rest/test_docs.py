"""docs/rest.md names every setting of the proxy."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.rest.settings import REST_OPTIONS

PAGE = (Path(__file__).parents[3] / "docs/rest.md").read_text()


@pytest.mark.parametrize("name", [row.name for row in REST_OPTIONS])
def test_setting_is_documented(name: str) -> None:
    assert f"`{name}`" in PAGE or f"{name}=" in PAGE

"""All kernels are compiled where CI runs: tests that compare both forms would only be skipped otherwise."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from tests.peers.cache import in_ci

SOURCE = Path(__file__).parents[3] / "src"
KERNELS = [path for path in sorted(SOURCE.rglob("*.pxd")) if path.with_suffix(".py").exists()]


@pytest.mark.parametrize("declarations", KERNELS, ids=lambda path: str(path.relative_to(SOURCE)))
def test_kernel_is_compiled_in_ci(declarations: Path) -> None:
    if not in_ci():
        pytest.skip("only CI requires a compiler")
    assert any(declarations.with_suffix(suffix).exists() for suffix in EXTENSION_SUFFIXES)

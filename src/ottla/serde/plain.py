"""Replaces the `cython` module for kernels that run as plain Python where Cython is not installed."""

from __future__ import annotations

from typing import Any

compiled = False


def cast(_kind: object, value: Any) -> Any:
    """Return the value unchanged."""
    return value

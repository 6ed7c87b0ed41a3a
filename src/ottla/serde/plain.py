"""What the kernels of this room ask of Cython, where they run as plain Python and Cython need not be there."""

from __future__ import annotations

from typing import Any

compiled = False


def cast(_kind: object, value: Any) -> Any:
    """The value as it is; never reached, since casts stand behind `compiled`."""
    return value

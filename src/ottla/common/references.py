"""Whether anybody else has an object of a list: how buffers are used again of which nobody says when he is done."""

import sys
from collections.abc import Sequence


def _references(kept: Sequence[object], index: int) -> int:
    item = kept[index]
    return sys.getrefcount(item)


# The list's, and as many as this way to count has itself: not the same number in each version of Python.
_NOBODY_ELSE = _references([object()], 0)


def is_free(kept: Sequence[object], index: int) -> bool:
    """Whether nothing but `kept` refers to its item; a view of a buffer does, for as long as it lives."""
    return _references(kept, index) <= _NOBODY_ELSE

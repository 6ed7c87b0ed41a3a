"""Finds objects that are not freed at once, because cycles of references hold them until a garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import FrameType

TIMES = 3


def garbage_of(work: Callable[[], object], *packages: str) -> list[str]:
    """Return the names of objects and frames of `packages` that only a garbage collection frees after `work`."""
    work()  # imports and caches
    gc.collect()
    gc.disable()
    try:
        for _ in range(TIMES):
            work()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return [name for name in map(_name, gc.garbage) if name.startswith(packages)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _name(garbage: object) -> str:
    if isinstance(garbage, FrameType):
        return f"{garbage.f_globals.get('__name__')}.{garbage.f_code.co_qualname}"
    return f"{type(garbage).__module__}.{type(garbage).__qualname__}"

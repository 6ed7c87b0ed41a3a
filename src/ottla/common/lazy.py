"""Modules whose names are imported on first use, and that `dir`, `help`, `import *` and completion see.

A stub beside the module declares each name once. Type checkers read it, and so does `lazy_names`:

    __init__.pyi:  from ottla.clients.producer import Producer as Producer
    __init__.py:   __getattr__, __dir__, __all__ = lazy_names(__name__)
"""

from __future__ import annotations

import sys
from collections.abc import Callable


def lazy_names(module: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a module whose stub declares one name on each line."""
    namespace = vars(sys.modules[module])
    spec = namespace["__spec__"]
    stub = spec.origin.rpartition(".")[0] + ".pyi"
    lines = [line.split() for line in spec.loader.get_data(stub).decode().splitlines()]
    sources = {name: source for _, source, _, _, _, name in lines}

    def get(name: str) -> object:
        if name not in sources:
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=sys.modules[module])
        source = sources[name]
        try:
            value: object = getattr(__import__(source, fromlist=[name]), name)
        except AttributeError as error:  # an AttributeError would mean that the name does not exist
            raise ImportError(f"{source} cannot be imported: {error}") from error
        namespace[name] = value
        return value

    for name, source in sources.items():
        if source == f"{module}.{name}":  # a later import of the submodule would hide its namesake
            get(name)
    return get, lambda: sorted({*namespace, *sources}), sorted(sources)

"""`NamedTuple` is `typing.NamedTuple`, declared in half the time: annotations are taken as they are.

`typing` looks at each of them, and compiles those that are text, to say what is no type. A type checker says that too,
and sees `typing.NamedTuple` here; a start declares dozens of tuples, which took 5 ms of `ottla up`.
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414 - exported
else:

    class _Declared(type):
        """Makes of the body of a class what `namedtuple` makes, with its methods and annotations."""

        def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, namespace)
            # From Python 3.14 on there are none before somebody asks a class for them.
            annotations = namespace.get("__annotations__") or type(name, (), dict(namespace)).__annotations__
            given = [field in namespace for field in annotations]
            if given != sorted(given):
                raise TypeError(f"{name} has a field without a default after one with a default")
            defaults = [namespace[field] for field in annotations if field in namespace]
            made = namedtuple(name, annotations, defaults=defaults, module=namespace["__module__"])  # noqa: PYI024
            made.__annotations__ = annotations
            for key, member in namespace.items():
                if key not in _LEFT_OUT and key not in annotations:
                    setattr(made, key, member)
            return made

    _LEFT_OUT = {"__module__", "__annotations__", "__annotate_func__", "__classdictcell__"}

    class NamedTuple(metaclass=_Declared):
        """The base of declarations; no class has it as its base in the end."""

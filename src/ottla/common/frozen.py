"""`@frozen` makes a class an immutable value with named fields, as `@dataclass(frozen=True, slots=True)` does.

A start declares dozens of them, and `dataclasses` compiles six methods for each, most of a millisecond: 40 ms of
`ottla up`. Here one method is compiled, `__init__`, when the first value is made, and the others are shared. Equality
(same class, same fields), hash, repr, pattern matching, copying and pickling are the same; an assignment raises
`dataclasses.FrozenInstanceError`.

Fields may have defaults that cannot change: what can be hashed, and `MappingProxyType`. `replace` changes fields in a
new value. Who needs `field()`, `fields()`,
`asdict()` or fields in a base class writes a dataclass. `copy.replace` (Python 3.13) works by `__replace__`.
"""

from __future__ import annotations

from itertools import pairwise
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar, dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True)
def frozen(cls: type[_T]) -> type[_T]:
    """The class anew with a slot for each annotated name; raises TypeError for what only a dataclass can do."""
    annotations: dict[str, Any] = cls.__annotations__
    names = tuple(name for name, kind in annotations.items() if not str(kind).startswith("ClassVar"))
    members = {name: member for name, member in cls.__dict__.items() if name not in ("__dict__", "__weakref__")}
    defaults = {name: members.pop(name) for name in names if name in members}
    if any(_may_change(default) for default in defaults.values()):
        raise TypeError(f"{cls.__name__} has a default that could change, or a field(): make it a dataclass")
    if any(getattr(base, "__match_args__", ()) for base in cls.__bases__):
        raise TypeError(f"{cls.__name__} has fields in a base class: make it a dataclass")
    for name, method in _SHARED.items():
        if members.get(name) is None:  # a class that has its own __eq__ has None for its hash
            members[name] = method
    members["__slots__"] = members["__match_args__"] = names
    metaclass: Any = type(cls)
    made: Any = metaclass(cls.__name__, cls.__bases__, members)
    made.__init__ = _init_later(made, names, defaults, annotations)
    return made  # type: ignore[no-any-return]


def _may_change(default: Any) -> bool:
    return (default.__hash__ is None and type(default) is not MappingProxyType) or hasattr(default, "default_factory")


def _init_later(made: Any, names: tuple[str, ...], defaults: dict[str, Any], annotations: dict[str, Any]) -> Any:
    """An `__init__` in whose place the compiled one comes when it is called, or somebody asks for its signature."""
    if any(name in defaults and next_name not in defaults for name, next_name in pairwise(names)):
        raise SyntaxError(f"{made.__name__} has a non-default field after one with a default")

    def compile_it() -> Any:
        made.__init__ = init = _init(made, names, defaults, annotations)
        return init

    def first_call(self: Any, /, *args: Any, **kwargs: Any) -> None:
        compile_it()(self, *args, **kwargs)

    first_call.compile_it = compile_it  # type: ignore[attr-defined]
    return first_call


class _Signature:
    """What `inspect.signature` looks for in a class. There is none: it then looks at `__init__`, compiled by now."""

    def __get__(self, instance: object, owner: Any) -> NoReturn:
        if hasattr(owner.__init__, "compile_it"):
            owner.__init__.compile_it()
        raise AttributeError("__signature__")


def _init(made: Any, names: tuple[str, ...], defaults: dict[str, Any], annotations: dict[str, Any]) -> Any:
    """The one method that is compiled. It fills the slots by their descriptors, which refuse nobody."""
    scope = {f"_set_{name}": made.__dict__[name].__set__ for name in names}
    scope.update((f"_default_{name}", default) for name, default in defaults.items())
    parameters = "".join(f", {name}=_default_{name}" if name in defaults else f", {name}" for name in names)
    lines = "".join(f"\n _set_{name}(self, {name})" for name in names)
    exec(f"def __init__(self{parameters}):{lines or ' pass'}", scope)  # noqa: S102 - names of fields, nothing else
    init: Any = scope["__init__"]
    init.__qualname__ = f"{made.__qualname__}.__init__"
    init.__module__ = made.__module__
    init.__annotations__ = {name: annotations[name] for name in names} | {"return": None}
    return init


def _fields(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in self.__match_args__])


def _eq(self: Any, other: object) -> bool:
    return _fields(self) == _fields(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(_fields(self))


def _repr(self: Any) -> str:
    fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
    return f"{self.__class__.__qualname__}({fields})"


def _reduce(self: Any) -> tuple[Any, ...]:
    return self.__class__, _fields(self)


def replace(value: _T, /, **changes: object) -> _T:
    """The value with other fields, as `dataclasses.replace`; `copy.replace` does it from Python 3.13 on."""
    fields = dict(zip(value.__match_args__, _fields(value), strict=True))  # type: ignore[attr-defined]
    return value.__class__(**(fields | changes))


def _refuse(self: Any, name: str, *_: object) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"{self.__class__.__name__}.{name} cannot be changed: it is a value")


_SHARED = {
    "__eq__": _eq,
    "__hash__": _hash,
    "__repr__": _repr,
    "__reduce__": _reduce,
    "__replace__": replace,
    "__setattr__": _refuse,
    "__delattr__": _refuse,
    "__signature__": _Signature(),
}

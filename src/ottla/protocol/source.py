"""Source text of a function that grows line by line, and is compiled with the objects that it refers to."""

from __future__ import annotations

import linecache
from struct import Struct as Packer
from typing import Any

from ottla.protocol.message import MISSING, Struct
from ottla.protocol.plans import ZERO, Plan


class Source:
    """Lines of a function that grows, and the objects that it refers to."""

    def __init__(self, name: str, signature: str) -> None:
        self.name = name
        self.lines = [f"def {name}({signature}):"]
        self.depth = 1
        self.names: dict[str, Any] = {}

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def constant(self, prefix: str, value: Any) -> str:
        """A global name for `value`."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = f"{prefix}_{len(self.names)}"
        self.names[name] = value
        return name

    def class_name(self, cls: type[Struct]) -> str:
        self.names.setdefault(cls.__name__, cls)
        return cls.__name__

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def compile(self, filename: str, names: dict[str, Any]) -> Any:
        text = self.text()
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        namespace = {**names, **self.names, "__name__": __name__}
        exec(compile(text, filename, "exec"), namespace)  # noqa: S102 - our own declarations
        return namespace[self.name]


def default_text(source: Source, plan: Plan) -> str:
    """An expression of a field's default, or "" if it has to be built."""
    if plan.default is MISSING:
        return ""
    if plan.kind == "Uuid" and not plan.is_list and plan.default == ZERO["Uuid"]:
        return source.constant("zero", plan.default)
    return repr(plan.default)


_packers: dict[str, Packer] = {}


def packer(form: str) -> Packer:
    """The `struct.Struct` of a format; formats repeat from message to message."""
    known = _packers.get(form)
    if known is None:
        known = _packers[form] = Packer(form)
    return known

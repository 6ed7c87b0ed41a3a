"""Pages for the public Python packages, from the signatures and docstrings of the running code.

They are read from imported objects, not from source: many methods of blocking clients are made from the methods of the
asyncio clients, with their signatures and docstrings.
"""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from types import ModuleType

CLIENTS = "ottla.clients"
# Page -> its package, and the names on it; () means all names that are on no other page of the package.
PAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "Producer": (
        CLIENTS,
        ("Producer", "AsyncProducer", "Delivery", "AsyncDelivery", "RecordMetadata", "AppendedRange"),
    ),
    "Consumer": (
        CLIENTS,
        ("Consumer", "AsyncConsumer", "Record", "GroupMetadata", "OffsetAndMetadata", "TopicPartition"),
    ),
    "Share consumer": (CLIENTS, ("ShareConsumer", "AsyncShareConsumer", "AcknowledgeType")),
    "Admin": (CLIENTS, ("Admin", "AsyncAdmin")),
    "Errors and events": (CLIENTS, ()),
    "Streams": ("ottla.streams", ()),
    "Spark": ("ottla.spark", ()),
    "Connect": ("ottla.connect", ()),
    "Tests": ("ottla.testing", ()),
}
_WIDEST = 90
_INDENTED = re.compile(r"(?:^|\n\n)((?: {4}[^\n]*(?:\n|$)|\n(?= {4}))+)")


def pages() -> Iterator[tuple[str, str, str]]:
    """Return the title, the path and the text of each page."""
    for title in PAGES:
        yield title, f"reference/{title.lower().replace(' ', '-')}.md", page(title)


def page(title: str) -> str:
    """Return the page of this title."""
    package, names = PAGES[title]
    module = importlib.import_module(package)
    head = f"# Python API: {title.lower()}\n\nFrom `{package}`.\n"
    return head + "".join(_section(name, _named(module, name)) for name in names or _others(module))


def _others(module: ModuleType) -> list[str]:
    named = {name for package, names in PAGES.values() if package == module.__name__ for name in names}
    rest = [name for name in module.__all__ if name not in named]
    return [name for name in rest if callable(_named(module, name))]


def _named(module: ModuleType, name: str) -> object:
    """Return what the package exports; a submodule of the same name, once imported, hides it."""
    found = getattr(module, name)
    return getattr(found, name, None) if inspect.ismodule(found) else found


def _section(name: str, thing: object) -> str:
    if not inspect.isclass(thing):
        return f"\n## {name}\n\n{_signature(name, thing)}{_text(thing)}"
    parts = [f"\n## {name}\n\n"]
    if not issubclass(thing, BaseException):
        parts.append(_signature(name, thing))
    parts.append(_text(thing))
    for member, value in _members(thing):
        is_call = callable(value)
        parts.append(f"\n### {member}{'()' if is_call else ''} {{: #{name.lower()}.{member} }}\n\n")
        parts.append((_signature(member, value) if is_call else "") + _text(value))
    return "".join(parts)


def _members(thing: type) -> Iterable[tuple[str, object]]:
    """The public methods and properties of Ottla's own classes, in the order of their definition."""
    seen: dict[str, object] = {}
    for owner in thing.__mro__:
        if not owner.__module__.startswith("ottla."):
            continue
        for member in vars(owner):
            value = inspect.getattr_static(thing, member)
            value = getattr(value, "__func__", value)
            documented = isinstance(value, property) or (callable(value) and not inspect.isclass(value))
            if not member.startswith("_") and documented and inspect.getdoc(value):
                seen.setdefault(member, value)
    return seen.items()


def _signature(name: str, call: object) -> str:
    try:
        signature = inspect.signature(call)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # a class without one, such as an Enum of compiled code
        return ""
    parameters = [each for each in signature.parameters.values() if each.name != "self"]
    text = _plain(str(signature.replace(parameters=parameters)))
    if len(name + text) > _WIDEST:
        returns = text.rpartition(" -> ")[2] if signature.return_annotation is not signature.empty else "None"
        rows = ",\n    ".join(_starred(parameters))
        text = f"(\n    {rows}\n) -> {returns}"
    text = text.removesuffix(" -> None")
    kind = "async " if inspect.iscoroutinefunction(call) else ""
    return f"```python\n{kind}{name}{text}\n```\n\n"


def _plain(text: str) -> str:
    """Return a signature without the quotes of annotations, and without addresses, which differ between builds."""
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)
    return re.sub(r"<[^<>]* at 0x\w+>", "...", text)


def _starred(parameters: list[inspect.Parameter]) -> Iterator[str]:
    """Return each parameter, and `*` before the first one that is only a keyword."""
    previous: object = inspect.Parameter.POSITIONAL_ONLY
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and previous not in (parameter.kind, parameter.VAR_POSITIONAL):
            yield "*"
        yield _plain(str(parameter))
        previous = parameter.kind


def _text(thing: object) -> str:
    """Return the docstring as Markdown: its indented examples become Python blocks."""
    text = inspect.getdoc(thing) or ""
    if inspect.isclass(thing) and thing.__doc__ is None:
        return ""
    return (
        _INDENTED.sub(lambda match: f"\n\n```python\n{textwrap.dedent(match.group(1)).strip()}\n```\n\n", text).strip()
        + "\n"
    )

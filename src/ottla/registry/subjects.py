"""Names of subjects: `orders-value` in the default context, `:.staging:orders-value` in the context `.staging`.

A context without a subject is written `:.staging:`; the default context is `.`, and its prefix is empty. The context
`.__GLOBAL` has no subjects: its settings and mode apply where nothing more specific is set. `:*:` stands for all
contexts in listings.
"""

from __future__ import annotations

from typing import Final, NamedTuple

DEFAULT_CONTEXT: Final = "."
GLOBAL_CONTEXT: Final = ".__GLOBAL"
ALL_CONTEXTS: Final = ":*:"
_RESERVED: Final = ("__GLOBAL", "__EMPTY")


class QualifiedSubject(NamedTuple):
    """A context, which starts with a dot, and the name of a subject in it, which may be empty."""

    context: str
    subject: str

    def __str__(self) -> str:
        return context_prefix(self.context) + self.subject


def split(name: str) -> QualifiedSubject:
    """Separate the context from the subject."""
    if not name.startswith(":"):
        return QualifiedSubject(DEFAULT_CONTEXT, name)
    if name.startswith(":."):
        context, _, subject = name[1:].partition(":")
        return QualifiedSubject(context, subject)
    if name.startswith(ALL_CONTEXTS):
        return QualifiedSubject("*", name[len(ALL_CONTEXTS) :])
    return QualifiedSubject(DEFAULT_CONTEXT, name)


def context_of(name: str | None) -> str:
    """Return the context of a subject; the default one for None."""
    return DEFAULT_CONTEXT if name is None or not name.startswith(":") else split(name).context


def context_prefix(context: str) -> str:
    """Return the prefix of the names in a context."""
    return "" if context == DEFAULT_CONTEXT else f":{context}:"


def normalize(name: str) -> str:
    """Return the name in the form that is stored: `:.:x` becomes `x`."""
    return str(split(name)) if name.startswith(":") else name


def normalize_context(context: str) -> str:
    """Return the prefix for a context as it appears in a path: `staging`, `.staging` and `:.staging:` are the same.

    Raises ValueError if it has a colon inside.
    """
    inner = context.removeprefix(":").removesuffix(":")
    if ":" in inner:
        raise ValueError(f"Context name '{context}' cannot contain a colon")
    return context_prefix(inner if inner.startswith(".") else "." + inner)


def qualify(parent: str | None, name: str) -> str:
    """Return the full name of a subject that a schema of the subject `parent` references."""
    own = split(name)
    if own.context != DEFAULT_CONTEXT:
        return str(own)
    return str(QualifiedSubject(context_of(parent), own.subject))


def is_default_context(name: str | None) -> bool:
    """Whether the name stands for the default context: its settings are the global ones."""
    return name is None or split(name) == (DEFAULT_CONTEXT, "")


def is_valid(name: str, *, for_settings: bool = False) -> bool:
    """Whether a subject may have this name. Settings and modes may belong to the global context, too."""
    if any(ord(char) < 32 or 127 <= ord(char) < 160 for char in name):
        return False
    own = split(name)
    return own.subject not in _RESERVED and (for_settings or own.context != GLOBAL_CONTEXT)


def matches(pattern: str | None, name: str) -> bool:
    """Whether `name` is the subject `pattern`, or is in the context that `pattern` stands for. None matches all."""
    if pattern is None or pattern == name:
        return True
    own = split(pattern)
    return not own.subject and own.context in (GLOBAL_CONTEXT, context_of(name))

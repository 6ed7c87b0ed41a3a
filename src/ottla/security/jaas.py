"""JAAS login configuration in one line, the value of `sasl.jaas.config`: KIP-85.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="..." user_alice="...";

Words consist of letters, digits and `-_$.`; every other name or value is quoted. A backslash escapes a character.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ottla.security.mechanism import SaslError

_TOKEN = re.compile(
    r"\s+|//[^\n]*|/\*.*?\*/|(?P<word>[\w$.\u00a0-\u00ff-]+)|(?P<mark>[=;])"
    r"|\"(?P<double>(?:[^\"\\\n]|\\.)*)\"|'(?P<single>(?:[^'\\\n]|\\.)*)'",
    re.DOTALL,
)
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


class LoginModule(NamedTuple):
    """The name of a login module, with its Java package, and its options. Options may be secret."""

    name: str
    options: dict[str, str]

    @property
    def short_name(self) -> str:
        """The name without its Java package."""
        return self.name.rpartition(".")[2]

    def __repr__(self) -> str:
        return f"LoginModule({self.name!r}, {len(self.options)} options)"


def parse(text: str) -> LoginModule:
    """Parse one login module with its options; raises SaslError, whose message has no part of the text."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != (";", True) or tokens[1][0].lower() not in _FLAGS:
        raise _malformed()
    options: dict[str, str] = {}
    rest = tokens[2:-1]
    if len(rest) % 3:
        raise _malformed()
    for (name, name_is_mark), equals, (value, value_is_mark) in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        if name_is_mark or value_is_mark or equals != ("=", True):
            raise _malformed()
        options[name] = value
    return LoginModule(tokens[0][0], options)


def _tokens(text: str) -> list[tuple[str, bool]]:
    """The words and values of the text, and whether each is a mark."""
    tokens: list[tuple[str, bool]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _malformed()
        position = match.end()
        if match.lastgroup == "mark":
            tokens.append((match["mark"], True))
        elif match.lastgroup is not None:
            word = match[match.lastgroup]
            tokens.append((word if match.lastgroup == "word" else _unescaped(word), False))
    return tokens


def _unescaped(quoted: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), quoted, flags=re.DOTALL)


def _malformed() -> SaslError:
    return SaslError('sasl.jaas.config is not of the form: LoginModule required name="value" ... ;')

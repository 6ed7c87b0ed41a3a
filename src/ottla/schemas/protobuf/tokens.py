"""From the text of a .proto file to tokens.

A token is a word (letters, digits, `_`, `.` and `-`: a dotted name or a number is one word), a quoted string with its
quotes, or one other character. The last token is empty. Numbers of lines are computed only for an error, from the
number of the token. Time is linear in the text: no expression backtracks.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

from ottla.schemas.model import InvalidSchema

_SKIPPED: Final = r"(?:[ \t\r\n]++|//[^\n]*+|/\*(?s:.*?)\*/)*+"
_WORD: Final = r"[A-Za-z0-9_.\-]++"
# The last alternatives match texts that end too early: they reach the end of the text.
_TOKEN: Final = rf"{_WORD}|\"(?:[^\"\\]++|\\(?s:.))*+\"|'(?:[^'\\]++|\\(?s:.))*+'|[\"'](?s:.*+)|/\*(?s:.*+)|(?s:.)|\Z"
_TOKENS: Final = re.compile(f"{_SKIPPED}({_TOKEN})")
_ESCAPE: Final = re.compile(r"\\(?:[xX]([0-9a-fA-F]{1,2})|([0-7]{1,3})|((?s:.)))")
_NO_DIGIT: Final = re.compile(r"(?<!\\)(?:\\\\)*+\\[xX](?![0-9a-fA-F])")
_CONTROL: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_DECIMAL: Final = re.compile(r"-?[0-9]{1,20}\Z")
_HEXADECIMAL: Final = re.compile(r"0[xX](-?[0-9a-fA-F]{1,16})\Z")
_WORD_CHARACTERS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")
MAX_DEPTH: Final = 64
MAX_MESSAGE: Final = 300


def line_of(text: str, place: int) -> int:
    """The number of the line that has token `place`."""
    for number, match in enumerate(_TOKENS.finditer(text)):
        if number == place:
            return text.count("\n", 0, match.start(1)) + 1
    return text.count("\n") + 1


class Tokens:
    """A cursor over the tokens of a text."""

    __slots__ = ("_text", "_tokens", "depth", "position")

    def __init__(self, text: str) -> None:
        self._text = text
        # Two empty tokens at the end: the expression for the end matches once, and a cursor may stand behind it.
        self._tokens: list[str] = [*_TOKENS.findall(text), ""]
        self.position = 0
        self.depth = 0

    def error(self, message: str, place: int | None = None) -> NoReturn:
        """Raise InvalidSchema with the line of token `place`, by default of the current token."""
        line = line_of(self._text, self.position if place is None else place)
        raise InvalidSchema(f"line {line}: {message[:MAX_MESSAGE]}")

    def enter(self) -> None:
        """Go one level deeper into blocks or values; the caller decrements `depth` when it leaves."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.error(f"nested deeper than {MAX_DEPTH} levels")

    def peek(self) -> str:
        """The current token; empty at the end of the text."""
        return self._tokens[self.position]

    def next(self) -> str:
        """The current token, which the cursor passes. Raises InvalidSchema at the end of the text."""
        token = self._tokens[self.position]
        if not token:
            self.error("unexpected end of the text")
        self.position += 1
        return token

    def skip(self, token: str) -> bool:
        """Pass the current token if it is `token`."""
        if self._tokens[self.position] == token:
            self.position += 1
            return True
        return False

    def require(self, token: str) -> None:
        """Pass `token`, or raise InvalidSchema."""
        found = self._tokens[self.position]
        if found != token:
            self.error(f"expected {token!r} but found {_shown(found)}")
        self.position += 1

    def word(self) -> str:
        """Pass a word."""
        token = self._tokens[self.position]
        if not token or token[0] not in _WORD_CHARACTERS:
            self.error(f"expected a word but found {_shown(token)}")
        self.position += 1
        return token

    def name(self) -> str:
        """Pass a word, or one in parentheses or brackets, which are not part of the result."""
        for opening, closing in (("(", ")"), ("[", "]")):
            if self.skip(opening):
                word = self.word()
                self.require(closing)
                return word
        return self.word()

    def at_string(self) -> bool:
        """Whether the current token is a quoted string."""
        return self._tokens[self.position][:1] in {'"', "'"} and self._tokens[self.position] != ""

    def string(self) -> str:
        """Pass quoted strings that follow each other, and return them as one."""
        if not self.at_string():
            self.error(f"expected a quoted string but found {_shown(self.peek())}")
        parts = []
        while self.at_string():
            token = self._tokens[self.position]
            if len(token) < 2 or token[-1] != token[0] or _is_open(token):
                self.error("unterminated string")
            if "\\" in token and _NO_DIGIT.search(token):
                self.error("expected a hexadecimal digit after \\x")
            parts.append(_ESCAPE.sub(_unescape, token[1:-1]) if "\\" in token else token[1:-1])
            self.position += 1
        return "".join(parts)

    def integer(self) -> int:
        """Pass an integer of 32 bits, decimal or hexadecimal."""
        place = self.position
        word = self.word()
        if hexadecimal := _HEXADECIMAL.match(word):
            value = int(hexadecimal[1], 16)
        elif _DECIMAL.match(word):
            value = int(word)
        else:
            self.error(f"expected an integer but found {_shown(word)}", place)
        if not -0x80000000 <= value <= 0x7FFFFFFF:
            self.error(f"integer {word} does not fit 32 bits", place)
        return value


def _is_open(token: str) -> bool:
    """Whether the last quote of a token is escaped: the token is then the rest of a text with an open string."""
    backslashes = len(token[:-1]) - len(token[:-1].rstrip("\\"))
    return backslashes % 2 == 1


def _unescape(match: re.Match[str]) -> str:
    if match[1]:
        return chr(int(match[1], 16))
    if match[2]:
        return chr(int(match[2], 8))
    return _CONTROL.get(match[3], match[3])


def _shown(token: str) -> str:
    if not token:
        return "the end of the text"
    return repr(token if len(token) <= 40 else token[:40] + "...")

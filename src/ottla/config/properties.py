"""Java's `.properties` text: `key=value`, `key: value`, `key value`, comments, escapes, continued lines."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"


def parse_properties(text: str) -> dict[str, str]:
    """The keys and values of `text`; a key given twice keeps its last value. Raises ValueError on a broken escape."""
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        properties[_unescape(key)] = _unescape(value)
    return properties


def load_properties(path: "Path") -> dict[str, str]:
    """The same from a file in UTF-8; raises OSError, or ValueError naming the file."""
    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8 (byte {error.start})") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    pending: str | None = None
    for raw in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = raw.lstrip(_BLANKS)
        if pending is None and (not line or line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = (pending or "") + line[:-1]
            continue
        lines.append((pending or "") + line)
        pending = None
    if pending:
        lines.append(pending)
    return lines


def _split(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line) and line[position] not in "=:" + _BLANKS:
        position += 2 if line[position] == "\\" else 1
    rest = line[position:].lstrip(_BLANKS)
    if rest[:1] in {"=", ":"}:
        rest = rest[1:].lstrip(_BLANKS)
    return line[:position], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == "\\" and position < len(text):
            character = text[position]
            position += 1
            if character == "u":
                digits = text[position : position + 4]
                if len(digits) < 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                    raise ValueError(f"broken escape \\u{digits}: four hexadecimal digits must follow")
                character = chr(int(digits, 16))
                position += 4
            else:
                character = _ESCAPES.get(character, character)
        parts.append(character)
    # Characters beyond the Basic Multilingual Plane come as two escapes.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")

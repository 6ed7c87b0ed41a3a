"""Java's `.properties` text: `key=value`, `key: value`, `key value`, comments, escapes, continued lines."""

from collections.abc import Mapping
from os import PathLike

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"
_ESCAPED = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"})
_ESCAPED_IN_KEYS = _ESCAPED | str.maketrans({mark: f"\\{mark}" for mark in " =:#!\ufeff"})


def parse_properties(text: str) -> dict[str, str]:
    """Parse keys and values; the last value of a repeated key wins. Raises ValueError for a broken escape.

    A byte order mark at the beginning is skipped.
    """
    text = text.removeprefix("\ufeff")
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        properties[_unescape(key)] = _unescape(value)
    return properties


def format_properties(properties: Mapping[str, str]) -> str:
    """Return a text that `parse_properties` reads as these keys and values."""
    lines = []
    for key, value in properties.items():
        # Blanks between the separator and the value would be skipped.
        blank = "\\" if value.startswith(" ") else ""
        lines.append(f"{key.translate(_ESCAPED_IN_KEYS)}={blank}{value.translate(_ESCAPED)}\n")
    return "".join(lines)


def load_properties(path: str | PathLike[str]) -> dict[str, str]:
    """Parse a file; raises OSError, or ValueError with the file's name.

    The file is UTF-8, with or without a byte order mark. A file that is not valid UTF-8 is read as ISO 8859-1, which is
    what Java does with every file.
    """
    with open(path, "rb") as file:
        data = file.read()
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError(f"{path} is text in UTF-16: save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("iso-8859-1")
    try:
        return parse_properties(text)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _logical_lines(text: str) -> list[str]:
    """Return the lines without comments and leading blanks; continued lines are joined exactly as in Java."""
    lines: list[str] = []
    raw_lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    pending = ""
    is_continued = False
    for number, raw in enumerate(raw_lines, start=1):
        line = raw.lstrip(_BLANKS)
        # In Java, a single backslash before the last \n or \r of a file is an empty line; before \r\n it is not a line.
        at_end = number == len(raw_lines) and not raw and not text.endswith("\r\n")
        if not pending and (not line or line[0] in "#!"):
            if is_continued and at_end:
                lines.append("")
            is_continued = False
            continue
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        pending += line[:-1] if is_continued else line
        if not is_continued or number == len(raw_lines):
            lines.append(pending)
            pending = ""
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
    # Characters beyond the Basic Multilingual Plane are written as two escapes.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")

"""Records for people: a line each, with partition, offset and time dimmed, the key coloured, then value and headers.

Records are escaped. A very long value is cut, and its remaining size is shown.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.common import units
from ottla.common.style import Style
from ottla.tools.formats.escaping import escaped_text
from ottla.tools.formats.record_writer import Readable, header_text

LONGEST = 1000


class PrettyWriter:
    """Formats records for people; `with_topic` if there are several topics."""

    def __init__(self, style: Style, *, with_topic: bool) -> None:
        self._style = style
        self._with_topic = with_topic
        self._width = 0

    def lines(self, records: Iterable[Readable]) -> str:
        """Format one line per record."""
        placed = [(self._place(record), record) for record in records]
        self._width = max([self._width, *(len(place) for place, _ in placed)])
        return "".join([self._line(place, record) for place, record in placed])

    def _place(self, record: Readable) -> str:
        place = f"{record.partition}:{record.offset}"
        return f"{record.topic}:{place}" if self._with_topic else place

    def _line(self, place: str, record: Readable) -> str:
        style = self._style
        words = [style.dim(f"{place:<{self._width}}  {units.moment(record.timestamp)}")]
        if record.key is not None:
            words.append(style.green(_shown(record.key)) or style.dim('""'))
        words.append(style.dim("null") if record.value is None else _shown(record.value) or style.dim('""'))
        if record.headers:
            texts = (_cut(header_text(name, value).decode(), 0) for name, value in record.headers)
            words.append(style.yellow(f"[{', '.join(texts)}]"))
        return "  ".join(words) + "\n"


def _shown(data: bytes) -> str:
    if len(data) <= LONGEST:
        # A backslash of the record is shown unescaped: this output is for reading, not for parsing.
        return escaped_text(data).replace("\\\\", "\\")
    return _cut(escaped_text(data[:LONGEST]).replace("\\\\", "\\"), len(data) - LONGEST)


def _cut(text: str, omitted: int) -> str:
    if omitted or len(text) > LONGEST:
        return f"{text[:LONGEST]}… and {units.size(omitted or len(text) - LONGEST)} more"
    return text

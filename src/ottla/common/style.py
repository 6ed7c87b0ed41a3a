"""Colours for text that people read at a terminal."""

import os
from typing import TextIO


class Style:
    """Colours for a terminal; none elsewhere or with NO_COLOR (https://no-color.org)."""

    def __init__(self, *, coloured: bool) -> None:
        self.coloured = coloured

    @classmethod
    def of(cls, stream: TextIO) -> "Style":
        """Return the style for text that is written to `stream`."""
        plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
        return cls(coloured=stream.isatty() and not plain)

    def bold(self, text: str) -> str:
        """Emphasize."""
        return self._wrap("1", text)

    def dim(self, text: str) -> str:
        """Mark secondary text."""
        return self._wrap("2", text)

    def green(self, text: str) -> str:
        """Mark success."""
        return self._wrap("32", text)

    def yellow(self, text: str) -> str:
        """Mark a warning."""
        return self._wrap("33", text)

    def red(self, text: str) -> str:
        """Mark a failure."""
        return self._wrap("31", text)

    def _wrap(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.coloured else text

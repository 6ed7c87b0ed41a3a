"""Exports `Survey`, compiled or not. See `_survey`."""

from ottla.records._survey import CRC, FRAME, LOOK, MORE, OFFSET, Survey

__all__ = ["CRC", "FRAME", "LOOK", "MORE", "OFFSET", "Survey"]

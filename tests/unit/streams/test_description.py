"""A pipeline in words, and in a checkpoint."""

from __future__ import annotations

import pytest

from ottla.streams.checkpoint_files import StoredProgram, differences, stored_program
from ottla.streams.declarations import Stream, Table
from ottla.streams.description import (
    Description,
    Operator,
    QueryDescription,
    input_line,
    text,
)

COUNTS = Description(
    "wordcount",
    True,
    {"lines": input_line(Stream("lines", "text"))},
    ["counts: updates, json, key word"],
    [QueryDescription("wordcount", "update", ("counts",), (Operator("aggregate", ("word",)),))],
    {"lines": "lines"},
)


def test_description_in_words() -> None:
    assert text(COUNTS) == (
        "wordcount (exactly once)\n"
        "  in   lines: lines: stream of text\n"
        "  run  wordcount: update mode, aggregate by word\n"
        "  out  counts: updates, json, key word"
    )


def test_lines_of_inputs() -> None:
    clicks = Stream("c", "json", "at TIMESTAMP", "text", bad="topic:c.bad", time="at", late="1 hour")
    assert input_line(clicks) == (
        "c: stream of json (at TIMESTAMP), key text, event time at, late 1 hour, at most 1 day in the future, "
        "invalid records: c.bad"
    )
    assert input_line(Table("a", "carrier", "json", "name STRING")) == (
        "a: table of json by carrier (name STRING), current in each micro-batch"
    )


def test_stored_program_is_read_again() -> None:
    program = stored_program(COUNTS, 2)
    assert StoredProgram.loads(program.dumps()) == program
    assert differences(program, program) == []
    with pytest.raises(ValueError, match="unreadable"):
        StoredProgram.loads("{}")


def test_changes_of_inputs_and_operators_are_named() -> None:
    before = StoredProgram(2, {"lines": "lines", "old": "o"}, {"wordcount": ["aggregate by word"]})
    now = StoredProgram(2, {"lines": "texts"}, {"wordcount": ["aggregate by word, day"], "wordcount.x": ["join"]})
    assert differences(before, now) == [
        "its input 'lines' was the topic 'lines', and is 'texts'",
        "its input 'old' was the topic 'o', and is None",
        "query 'wordcount' had aggregate by word, and has aggregate by word, day",
        "query 'wordcount.x' had no state, and has join",
    ]

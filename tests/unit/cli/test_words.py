"""Words of the command line that people mistype: each one is a value or a failure in one line, never a traceback."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.cli import group_reset, names, produce, topic, topic_leaders, txn
from ottla.common.failure import Failure
from ottla.launch import settings as broker_settings
from ottla.tools import client_kinds, offsets, values
from ottla.tools.formats.option import parse_format
from ottla.tools.formats.record_reader import Template
from ottla.tools.formats.template import FormatError

_UNIT = r"(ms|s|m|min|h|d|w|B|KiB|g|TiB|parsec)"
WORDS = st.one_of(
    st.text(st.sampled_from("0123456789@-+:,./=TZPdhms %{}[]\\'\"\udcff\0٣é"), max_size=16),
    st.from_regex(rf"@?[-+]?\d{{1,400}}(\.\d{{1,400}})?{_UNIT}?", fullmatch=True),
    st.from_regex(rf"@?-?(\d{{1,25}} ?{_UNIT}){{1,3}}", fullmatch=True),
    st.from_regex(r"@?\d{1,6}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:\d\d)?)?", fullmatch=True),
    st.from_regex(r"\[?[0-9a-f:.]{0,20}\]?:\d{0,9}", fullmatch=True),
)
PARSERS: dict[str, Callable[[str], Any]] = {
    "-o": offsets.parse_where,
    "--until": offsets.parse_moment,
    "consume -p": lambda word: offsets.parse_partitions([word]),
    "--by-duration": values.milliseconds,
    "--config": lambda word: values.assignments([word, f"retention.ms={word}", f"segment.bytes={word}", f"x={word}"]),
    "-X": lambda word: client_kinds.given([word], ("producer", "consumer"), "producer"),
    "-X linger.ms": lambda word: client_kinds.given([f"linger.ms={word}"], ("producer",), "producer"),
    "--listen": broker_settings._listener,
    "--replica-assignment": topic._assignments,
    "TOPIC/PARTITION": txn._partition,
    "TOPIC:PARTITION of group reset": lambda word: list(group_reset._named(f"t:{word}", {"t": 3})),
    "topic reassign --brokers": topic_leaders._node_ids,
    "produce -p": produce._partition,
    "--rate": produce._rate,
    "TOPIC --regex": lambda word: names.choose([word], ["a", "b"], "topic", regex=True),
    "TOPIC": lambda word: names.choose([word], ["a", "b"], "topic"),
    "-f": parse_format,
    "-f %T{}": lambda word: parse_format(f"%T{{strftime[{word}]}} %k{{{word}}}"),
}


@pytest.mark.parametrize("option", PARSERS)
@given(word=WORDS)
@example("[[")  # Python warns about it
@example("9" * 5000)  # Python converts at most 4,300 digits
@example("t/" + "9" * 5000)
def test_any_word_is_a_value_or_a_failure_in_one_line(option: str, word: str) -> None:
    problem = None
    try:
        PARSERS[option](word)
    except Failure as failure:
        problem, code = failure.problem, failure.exit_code
    except click.UsageError as error:
        problem, code = error.format_message(), error.exit_code
    if problem is not None:
        assert problem.strip()
        assert code == 2 or option.startswith("TOPIC")


@given(st.text(st.sampled_from("%kvtpoThKVRHs{}[]0x\\n,: "), max_size=14))
def test_any_format_can_be_read_or_is_refused(text: str) -> None:
    """A format that is accepted for reading has an end for each of its fields."""
    with contextlib.suppress(Failure, FormatError):
        Template(parse_format(text))


@given(st.integers(0, 2**62), st.sampled_from(["retention.ms", "segment.bytes", "x"]))
def test_explained_value_begins_with_the_value_itself(number: int, name: str) -> None:
    text = values.explained(name, str(number))
    assert text.split()[0] == str(number)
    assert values.broker_value(name, text.split()[0]) == str(number)

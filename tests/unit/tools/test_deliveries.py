"""Results of sent records: which lines failed, and the summary of the offsets."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.clients import RecordMetadata
from ottla.clients.errors import ClientError, MessageTooLarge
from ottla.tools.deliveries import Deliveries, reason


class Sent:
    """The result of a record: a position, or an error."""

    def __init__(self, partition: int, offset: int, error: Exception | None = None, *, done: bool = True) -> None:
        self.topic = "t"
        self.partition = partition
        self._offset = offset
        self._error = error
        self.is_done = done

    def done(self) -> bool:
        return self.is_done

    def exception(self, timeout_s: float | None = None) -> Exception | None:
        self.is_done = True
        return self._error

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        if self._error is not None:
            raise self._error
        return RecordMetadata(self.topic, self.partition, self._offset, 1000 + self._offset)


def deliveries(*, verbose: bool = False, as_json: bool = False) -> tuple[Deliveries, io.BytesIO, list[str]]:
    out, said = io.BytesIO(), list[str]()
    return Deliveries(out, verbose=verbose, as_json=as_json, say=said.append), out, said


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([None, None, ClientError("lost")])), max_size=30))
def test_every_record_is_acknowledged_or_failed_and_offsets_are_ranges(
    rows: list[tuple[int, Exception | None]],
) -> None:
    held, _, said = deliveries()
    offsets: dict[int, list[int]] = {}
    for line, (partition, error) in enumerate(rows, 1):
        offset = len(offsets.setdefault(partition, []))
        if error is None:
            offsets[partition].append(offset)
        held.add("file:", line, Sent(partition, offset, error, done=line % 3 > 0))
    held.finish()
    failed = [line for line, (_, error) in enumerate(rows, 1) if error is not None]
    assert (held.acknowledged, held.failed) == (len(rows) - len(failed), len(failed))
    assert len(said) == min(len(failed), 11)
    assert all(f"file:{line}: lost" in text for line, text in zip(failed[:10], said, strict=False))
    summary = held.summary(0)
    for partition, known in offsets.items():
        shown = f"t/{partition} 0" + (f"-{known[-1]}" if len(known) > 1 else "")
        assert (f" {shown}" in summary) == bool(known)


def test_results_are_printed_in_the_order_of_sending() -> None:
    held, out, _ = deliveries(verbose=True)
    first, second = Sent(0, 5, done=False), Sent(1, 9)
    held.add("", 1, first)
    held.add("", 2, second)
    held.look()
    assert out.getvalue() == b"", "the first record is not settled"
    first.is_done = True
    held.look()
    assert out.getvalue() == b"t\t0\t5\nt\t1\t9\n"


def test_json_lines_name_the_line_of_each_acknowledged_record() -> None:
    held, out, said = deliveries(verbose=True, as_json=True)
    held.add("in:", 3, Sent(0, 5))
    held.add("in:", 4, Sent(0, 6, ClientError("lost")))
    held.finish()
    [row] = map(json.loads, out.getvalue().splitlines())
    assert row == {"line": 3, "topic": "t", "partition": 0, "offset": 5, "timestamp": 1005}
    assert "in:4: lost" in said[0]


def test_summary_shows_eight_partitions_and_counts_the_rest() -> None:
    held, _, _ = deliveries()
    for partition in range(11):
        held.add("", partition, Sent(partition, 7))
    held.finish()
    text = held.summary(2.0)
    assert text.startswith("11 records acknowledged in 2 s (6/s): t/0 7, t/1 7, ")
    assert text.endswith("t/7 7 and 3 more")


@pytest.mark.parametrize(("count", "text"), [(0, "0 records acknowledged in 1 s"), (1, "1 record acknowledged in 1 s")])
def test_records_without_offsets_have_no_places(count: int, text: str) -> None:
    held, _, _ = deliveries()
    for line in range(count):
        held.add("", line, Sent(0, -1))
    held.finish()
    assert held.summary(1.0) == text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ClientError("two\n  lines"), "two lines"),
        (ClientError(""), "ClientError"),
        (MessageTooLarge("above max.request.size"), "above max.request.size; -X max.request.size=BYTES allows more"),
        (MessageTooLarge("above max.message.bytes"), "`ottla topic alter TOPIC --config max.message.bytes=BYTES`"),
        (MessageTooLarge("too large"), "too large"),
    ],
)
def test_reason_is_one_line_with_the_next_step(error: Exception, text: str) -> None:
    assert text in reason(error)
    assert "\n" not in reason(error)
    if "max." not in str(error):
        assert reason(error) == text

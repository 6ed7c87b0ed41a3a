"""Start offsets, times and partitions on the command line, and records for people."""

from __future__ import annotations

import pytest

from ottla.clients.consumer.record import record_class
from ottla.common.failure import Failure
from ottla.common.style import Style
from ottla.tools.follow import newest
from ottla.tools.formats.record_lines import LONGEST, PrettyWriter
from ottla.tools.offsets import Where, parse_moment, parse_partitions, parse_where

NOW = 1_769_860_800_000


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("beginning", Where("beginning")),
        ("latest", Where("end")),
        ("17", Where("offset", 17)),
        ("+17", Where("after", 17)),
        ("-17", Where("before", 17)),
        ("@-1h30m", Where("time", NOW - 5_400_000)),
        ("@1769860800123", Where("time", 1_769_860_800_123)),
        ("@1769860800", Where("time", NOW)),
        ("@2026-01-31T12:00:00Z", Where("time", NOW)),
        ("@2026-01-31T13:00:00.5+01:00", Where("time", NOW + 500)),
        ("@now", Where("time", NOW)),
    ],
)
def test_start_offsets_are_parsed(text: str, place: Where) -> None:
    assert parse_where(text, NOW) == place


@pytest.mark.parametrize("text", ["", "x", "1.5", "--1", "@", "@yesterday", "@-1y", "9" * 20, "\u0661"])
def test_invalid_start_offset_is_a_usage_error(text: str) -> None:
    with pytest.raises(Failure) as caught:
        parse_where(text, NOW)
    assert caught.value.exit_code == 2


def test_time_without_a_time_zone_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Europe/Paris")
    time.tzset()
    try:
        assert parse_moment("2026-01-31T13:00") == NOW
        assert parse_moment("2026-01-31") == NOW - 13 * 3_600_000
        assert parse_moment("20260131") == NOW - 13 * 3_600_000
    finally:
        monkeypatch.undo()
        time.tzset()


def test_partitions_are_parsed_from_numbers_and_ranges() -> None:
    assert parse_partitions(["0,2", "4-6", "2"]) == [0, 2, 4, 5, 6]
    assert parse_partitions([]) == []
    for text in ("x", "-1", "1-", "0-99999999", "5-4"):
        with pytest.raises(Failure):
            parse_partitions([text])


def test_newest_records_keep_the_order_of_each_partition() -> None:
    times = {0: [1, 9, 3], 1: [2, 4, 8]}  # the last record of partition 0 has an older timestamp
    records = [record_class("t", p)(i, t, None, b"", []) for p, row in times.items() for i, t in enumerate(row)]
    assert [(r.partition, r.offset) for r in newest(records, 4)] == [(1, 1), (1, 2), (0, 1), (0, 2)]
    assert len(newest(records, 99)) == 6
    assert newest([], 3) == []


def test_record_for_people_shows_its_place_and_escapes_control_characters() -> None:
    writer = PrettyWriter(Style(coloured=False), with_topic=True)
    odd = record_class("orders", 0)(7, -1, b"\x1b]0;title\x07", b"a\tb\\c", [("h", b"x"), ("n", None)])
    assert writer.lines([odd]) == "orders:0:7  -  \\x1b]0;title\\x07  a\\tb\\c  [h=x, n]\n"
    empty = record_class("orders", 0)(8, -1, b"", None, [])
    assert writer.lines([empty]) == 'orders:0:8  -  ""  null\n'
    long = record_class("orders", 0)(9, -1, None, b"x" * 3000, [])
    assert f"{'x' * LONGEST}… and 2.0 KiB more" in writer.lines([long])

"""Durations and sizes: parsing of the usual forms, and formatting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.common import units


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("90s", 90_000),
        ("1h30min", 5_400_000),
        ("1.5 d", 129_600_000),
        ("PT1H30M", 5_400_000),
        ("P7D", 604_800_000),
        ("10 minutes", 600_000),
        ("1 Day 12 hours", 129_600_000),
        ("1 millisecond", 1),
    ],
)
def test_duration_is_parsed(text: str, milliseconds: int) -> None:
    assert units.parse_duration(text) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "90", "soon", "1h30", "5 parsecs", "PT", "PT.S", "PT1.2.3S", "P1", "-1h", "nan s"]
)
def test_text_that_is_not_a_duration_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        units.parse_duration(text)


@pytest.mark.parametrize(
    ("text", "amount"), [("1.5 GiB", ("1.5", "gib")), ("7d", ("7", "d")), ("7", None), ("d", None), ("7d8h", None)]
)
def test_amount_is_a_number_and_a_unit(text: str, amount: tuple[str, str] | None) -> None:
    assert units.parse_amount(text) == amount


@pytest.mark.parametrize(
    ("number", "factor", "wanted"),
    [
        (str((1 << 62) + 1), 1, (1 << 62) + 1),
        ("8796093022207.5", 1 << 20, 8796093022207 * (1 << 20) + (1 << 19)),
        ("9007199254740993.0", 1, (1 << 53) + 1),
        ("0.1", 10, 1),
        ("0.5", 1, 0),
        ("1.5", 1, 2),
        ("0" * 5000 + "7", 1, 7),
        ("7." + "0" * 5000, 1, 7),
        (str(units.MAX_INT64), 1, units.MAX_INT64),
    ],
)
def test_amounts_beyond_the_precision_of_a_float_are_exact(number: str, factor: int, wanted: int) -> None:
    assert units.total([(number, factor)], number) == wanted


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("007", 7), ("000", 0), ("2147483647", 2147483647), ("2147483648", None), ("9" * 5000, None),
     ("", None), ("-1", None), ("+1", None), ("1_0", None), ("\u0663", None), ("\u00b2", None), (" 1", None)],
)  # fmt: skip
def test_whole_number_has_ascii_digits_and_a_limit(text: str, number: int | None) -> None:
    assert units.whole_number(text, 2147483647) == number


def test_units_of_sizes_are_powers_of_1024() -> None:
    assert [units.size_factor(unit) for unit in ("B", "k", "KB", "KiB", "m", "GiB", "t")] == [
        1, 1024, 1024, 1024, 1024**2, 1024**3, 1024**4,
    ]  # fmt: skip
    assert units.size_factor("parsec") is None


def test_sizes_and_durations_are_formatted_briefly() -> None:
    assert [units.size(count) for count in (None, -1, 512, 1_500_000, 1 << 50)] == [
        "-", "-", "512 B", "1.4 MiB", "1.0 PiB",
    ]  # fmt: skip
    assert [units.duration(ms) for ms in (None, 250, 0.5, 4_200, 200_000, 18_120_000, 604_800_000)] == [
        "-", "250 ms", "0.5 ms", "4.2 s", "3 min 20 s", "5 h 2 min", "7 d",
    ]  # fmt: skip


_PARTS = st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(sorted(units.UNITS_MS))), min_size=1, max_size=4)


@given(_PARTS)
def test_parts_of_a_duration_are_added(parts: list[tuple[int, str]]) -> None:
    expected = sum(count * units.UNITS_MS[unit] for count, unit in parts)
    assert units.parse_duration("".join(f"{count}{unit}" for count, unit in parts)) == expected
    assert units.parse_duration(" ".join(f"{count} {unit.upper()}" for count, unit in parts)) == expected


@given(st.integers(0, 10**5), st.integers(0, 10**5), st.integers(0, 10**5), st.integers(0, 10**5))
def test_iso_8601_and_units_name_the_same_duration(days: int, hours: int, minutes: int, seconds: int) -> None:
    iso = f"P{days}DT{hours}H{minutes}M{seconds}S"
    assert units.parse_duration(iso) == units.parse_duration(f"{days}d{hours}h{minutes}min{seconds}s")


@given(st.integers(0, 10**13))
def test_formatted_duration_is_read_back_without_its_smallest_part(milliseconds: int) -> None:
    text = units.duration(milliseconds)
    smallest_ms = units.UNITS_MS[{"h": "h", "min": "min", "s": "s", "ms": "ms", "d": "h"}[text.split()[-1]]]
    assert abs(units.parse_duration(text) - milliseconds) <= max(smallest_ms, 50)


@given(st.integers(0, 2**60))
def test_formatted_size_is_read_back_to_a_tenth_of_its_unit(count: int) -> None:
    amount = units.parse_amount(units.size(count))
    assert amount is not None
    factor = units.size_factor(amount[1])
    if factor is None:  # PiB are formatted, not read
        assert count >= 1 << 49
        return
    # The product of a decimal number may be off by its last bit.
    assert abs(float(amount[0]) * factor - count) <= factor / 20 * (1 + 1e-9)


@pytest.mark.parametrize("text", ["9" * 400 + "d", "9999999999999999999s", "P" + "9" * 400 + "D", "9" * 5000 + "ms"])
def test_duration_that_no_setting_can_hold_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="too large"):
        units.parse_duration(text)


@given(st.dictionaries(st.sampled_from(["a", "b c"]), st.sets(st.integers(0, 40), min_size=1), max_size=2))
def test_ranges_of_partitions_name_each_partition_once(by_topic: dict[str, set[int]]) -> None:
    text = units.ranges({topic: list(partitions) for topic, partitions in by_topic.items()})
    found: dict[str, set[int]] = {}
    for part in [] if text == "nothing" else text.split("; "):
        topic, _, runs = part.rpartition(" ")
        ends = [tuple(map(int, run.split("-"))) for run in runs.split(",")]
        members = [number for end in ends for number in range(end[0], end[-1] + 1)]
        assert members == sorted(set(members))
        found[topic] = set(members)
    assert found == by_topic

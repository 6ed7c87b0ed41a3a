"""Durations and sizes: parsing of the usual forms, and formatting."""

from __future__ import annotations

import pytest

from ottla.common import units


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("90s", 90_000), ("1h30min", 5_400_000), ("1.5 d", 129_600_000), ("PT1H30M", 5_400_000), ("P7D", 604_800_000)],
)
def test_duration_is_parsed(text: str, milliseconds: int) -> None:
    assert units.parse_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["", "90", "soon", "1h30", "5 parsecs", "PT"])
def test_text_that_is_not_a_duration_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        units.parse_duration(text)


@pytest.mark.parametrize(
    ("text", "amount"), [("1.5 GiB", (1.5, "gib")), ("7d", (7.0, "d")), ("7", None), ("d", None), ("7d8h", None)]
)
def test_amount_is_a_number_and_a_unit(text: str, amount: tuple[float, str] | None) -> None:
    assert units.parse_amount(text) == amount


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

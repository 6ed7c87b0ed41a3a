"""Versions and ranges of versions (KIP-891)."""

from __future__ import annotations

import pytest

from ottla.connect.errors import BadRequestError
from ottla.connect.herder.versions import absent, compare, matches, parse_range


@pytest.mark.parametrize(
    ("one", "other", "result"),
    [
        ("1.0", "1.0.0", 0),
        ("1.2", "1.10", -1),
        ("2.0", "2.0-rc1", 1),
        ("1.0-alpha", "1.0-beta", -1),
        ("4.3.0", "4.3", 0),
    ],
)
def test_versions_have_an_order(one: str, other: str, result: int) -> None:
    assert compare(one, other) == result
    assert compare(other, one) == -result


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (None, True), ("", True), ("latest", True), ("4.3.0", True), ("4.3", True), ("4.2", False), ("[4.0,5.0)", True),
        ("[4.0,4.3.0)", False), ("(4.3.0,)", False), ("(,4.3.0]", True), ("[1.0,2.0],[4.3.0]", True), ("[4.3.0]", True),
    ],
)  # fmt: skip
def test_ranges_contain_versions(wanted: str | None, fits: bool) -> None:
    assert matches("4.3.0", wanted) is fits


@pytest.mark.parametrize("text", ["[[[", "[1.0", "(1.0)", "1.0]", "1,2"])
def test_a_broken_range_is_a_bad_request(text: str) -> None:
    with pytest.raises(BadRequestError):
        parse_range(text)


def test_the_message_is_kafka_connects() -> None:
    text = "Plugin p not found that matches the version range [1.0,1.0], available versions: [4.3.0]"
    assert absent("p", "1.0", "4.3.0") == text

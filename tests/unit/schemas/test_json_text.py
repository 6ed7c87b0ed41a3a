"""JSON as Jackson writes it."""

from __future__ import annotations

import pytest

from ottla.schemas.json_text import double, dump, load
from ottla.schemas.model import InvalidSchema


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (100.0, "100.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (1234567.0, "1234567.0"),
        (1e7, "1.0E7"),
        (-12345678.9, "-1.23456789E7"),
        (1e23, "1.0E23"),
        (1.5e-7, "1.5E-7"),
        (5e-324, "4.9E-324"),
        (2e-323, "2.0E-323"),
        (float("inf"), '"Infinity"'),
        (float("-inf"), '"-Infinity"'),
        (float("nan"), '"NaN"'),
    ],
)
def test_floats_are_written_as_java_does(value: float, text: str) -> None:
    assert double(value) == text


def test_text_is_escaped_as_jackson_does() -> None:
    assert dump({"a\n": ['"\\/', "\x1f\x7f", "é\u2028🎉", None, True, -3]}) == (
        '{"a\\n":["\\"\\\\/","\\u001F\x7f","é\u2028🎉",null,true,-3]}'
    )


@pytest.mark.parametrize("number", ["1.0", "1.50", "1E+2", "1E-7", "0.000001", "0", "-3", "0.0", f"{10**30}"])
def test_exact_numbers_are_written_as_they_were_read(number: str) -> None:
    assert dump(load(number, exact=True)) == number


def test_exact_numbers_have_java_s_form() -> None:
    assert dump(load("[1e2, 1E-7, -0.0, 12.5e-10]", exact=True)) == "[1E+2,1E-7,0.0,1.25E-9]"


@pytest.mark.parametrize("text", ['"\\ud800"', '["\\udfff\\ud800"]', '{"\\uDead": 1}'])
def test_half_of_a_surrogate_pair_is_invalid(text: str) -> None:
    with pytest.raises(InvalidSchema, match="surrogate"):
        load(text)


def test_surrogate_pair_is_one_character() -> None:
    assert load('"\\ud83c\\udf89"') == "🎉"


def test_last_of_duplicate_keys_wins_at_the_place_of_the_first() -> None:
    assert dump(load('{"a": 1, "b": 2, "a": 3}')) == '{"a":3,"b":2}'


def test_comments_are_an_option() -> None:
    assert load('[1, /* , 2 */ "//"] // end', comments=True) == [1, "//"]
    with pytest.raises(InvalidSchema, match="not JSON"):
        load("[1] // end")


@pytest.mark.parametrize("text", ["/*" * 300_000, '"a" /*' * 300_000, "//" * 300_000, '"' + "\\" * 300_001, '/*"*/"'])
def test_comments_that_do_not_end_are_invalid_after_linear_work(text: str) -> None:
    with pytest.raises(InvalidSchema, match="not JSON"):
        load(text, comments=True)

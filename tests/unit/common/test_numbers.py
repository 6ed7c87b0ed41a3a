"""The whole numbers in an object of JSON are those that `json` finds."""

import json

import pytest

from ottla.common.numbers import numbers_in


def test_numbers_are_found_however_the_object_is_written() -> None:
    values = {"a": 1, "b": -20, "text": "3", "c": 2**63 - 1, "d": 1.5, "e": True, "f": None}
    expected = {"a": 1, "b": -20, "c": 2**63 - 1}
    for text in (json.dumps(values), json.dumps(values, separators=(",", ":")), json.dumps(values, indent=2) + "\n"):
        assert numbers_in(text) == expected
    assert numbers_in('{"list":[{"inner":7}],"outer":8}') == {"inner": 7, "outer": 8}
    assert numbers_in("{}") == {}


@pytest.mark.parametrize("text", ["", "[]", '{"a":1', '"a":1}', "nonsense"])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no object"):
        numbers_in(text)


@pytest.mark.parametrize(
    "text", ['{"a":1e5}', '{"a":12x}', "{a:1}", '{"a";1}', '{"a":1;}', '{"a":99999999999999999999}']
)
def test_what_is_no_whole_number_is_passed_over(text: str) -> None:
    assert numbers_in(text) == {}

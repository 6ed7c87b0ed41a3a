"""The sides of a comparison of a table with its topic."""

from __future__ import annotations

from ottla.connect.connectors.capture.verification import Side, compare, event_row


def test_order_does_not_matter() -> None:
    a, b = Side(), Side()
    for number in range(100):
        a.put(str(number), {"n": number})
        b.put(str(99 - number), {"n": 99 - number})
    b.put("1", {"n": 2})
    b.put("1", {"n": 1})
    assert compare(a, b).equal
    b.put("1", None)
    assert compare(a, b).missing == ["1"]


def test_rows_of_envelopes_flat_rows_and_tombstones() -> None:
    assert event_row({"op": "u", "before": {"n": 1}, "after": {"n": 2}}) == {"n": 2}
    assert event_row({"op": "d", "before": {"n": 1}, "after": None}) is None
    assert event_row({"n": 3}) == {"n": 3}
    assert event_row(None) is None

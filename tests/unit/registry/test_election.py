"""The choice of the primary from the metadata of members of Ottla, Confluent and Karapace."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.registry.election import DUPLICATE_URLS, Assignment, Identity, elect


def member(host: str, *, eligible: bool = True, **more: Any) -> bytes:
    fields = {"version": 1, "host": host, "port": 8081, "master_eligibility": eligible, "scheme": "http", **more}
    return json.dumps(fields).encode()


CONFLUENT = member("b", leader=False)
KARAPACE = member("c", version=2, karapace_version="6.1")


def test_eligible_member_with_the_smallest_url_is_elected() -> None:
    assert elect({"m1": KARAPACE, "m2": CONFLUENT}).member_id == "m2"
    assert elect({"m1": KARAPACE, "m2": member("b", eligible=False)}).member_id == "m1"


def test_primary_stays_when_another_member_joins() -> None:
    assert elect({"m1": member("a"), "m2": member("b", leader=True)}).member_id == "m2"


def test_two_members_that_believe_to_be_the_primary_do_not_matter() -> None:
    assert elect({"m1": member("b", leader=True), "m2": member("c", leader=True), "m3": member("a")}).member_id == "m3"


def test_primary_that_is_not_eligible_any_more_is_replaced() -> None:
    assert elect({"m1": member("a", eligible=False, leader=True), "m2": member("b")}).member_id == "m2"


def test_group_without_an_eligible_member_has_no_primary() -> None:
    assert elect({"m1": member("a", eligible=False)}) == Assignment(None, None)


def test_two_members_with_one_url_are_an_error() -> None:
    assert elect({"m1": member("a"), "m2": member("a")}).error == DUPLICATE_URLS


def test_member_with_unreadable_metadata_is_not_elected() -> None:
    broken = {"m1": b"\xff", "m2": b"[]", "m3": b"{}", "m4": member("a")}
    assert elect(broken).member_id == "m4"


def test_assignment_has_the_form_of_confluent() -> None:
    sent = elect({"m1": member("a")}).encode()
    assert json.loads(sent) == {
        "version": 1,
        "error": 0,
        "master": "m1",
        "master_identity": {
            "version": 1,
            "host": "a",
            "port": 8081,
            "master_eligibility": True,
            "scheme": "http",
            "leader": False,
        },
    }
    assert Assignment.decode(sent) == Assignment("m1", Identity("http", "a", 8081))


def test_assignment_of_karapace_may_name_a_member_that_is_not_eligible() -> None:
    identity = json.loads(member("a", eligible=False))
    sent = json.dumps({"master": "m1", "master_identity": identity, "error": 0}).encode()
    assert Assignment.decode(sent) == Assignment(None, None)


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b'{"master": "a", "master_identity": {"host": 1}}'])
def test_unreadable_assignments_raise_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        Assignment.decode(data)


def test_address_of_ipv6_has_brackets() -> None:
    assert Identity("https", "::1", 8081).url == "https://[::1]:8081"

"""Parts of the plugin without a broker: rules of faults, names, waiting, the movable clock, and messages."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.common.errors import ErrorCode
from ottla.protocol.registry import API
from ottla.testing.arguments import check, check_topic_configs
from ottla.testing.clock import MovableClock
from ottla.testing.pipe import Pipe
from ottla.testing.record import Record
from ottla.testing.rules import MOST_HITS_KEPT, TOPIC_APIS, Hit, Kind, Rule, checked_apis, checked_error
from ottla.testing.waiting import NotInTime, wait_until

HIT = Hit(0.5, "Produce", "c", "t-0")


@pytest.mark.parametrize(
    ("rule", "api", "client_id", "matches"),
    [
        (Rule(Kind.FAIL, ()), "Produce", None, True),
        (Rule(Kind.FAIL, ("Fetch",)), "Produce", None, False),
        (Rule(Kind.FAIL, ("Fetch", "Produce")), "Produce", None, True),
        (Rule(Kind.FAIL, (), client_id="c"), "Produce", "c", True),
        (Rule(Kind.FAIL, (), client_id="c"), "Produce", None, False),
        (Rule(Kind.FAIL, (), client_id=""), "Produce", "c", False),
        (Rule(Kind.FAIL, (), times=0), "Produce", "c", False),
    ],
)
def test_rule_applies_to_the_requests_that_it_names(rule: Rule, api: str, client_id: str | None, matches: bool) -> None:
    assert rule.matches(api, client_id) == matches


@pytest.mark.parametrize(
    ("rule", "topic", "partition", "wanted"),
    [
        (Rule(Kind.FAIL, ()), None, None, True),
        (Rule(Kind.FAIL, (), topic="t"), "t", 3, True),
        (Rule(Kind.FAIL, (), topic="t"), "u", 3, False),
        (Rule(Kind.FAIL, (), topic="t"), None, None, False),
        (Rule(Kind.FAIL, (), topic="t", partition=0), "t", 0, True),
        (Rule(Kind.FAIL, (), topic="t", partition=0), "t", 1, False),
        (Rule(Kind.FAIL, (), topic="t", partition=0), "t", None, True),
    ],
)
def test_rule_applies_to_the_parts_that_it_names(
    rule: Rule, topic: str | None, partition: int | None, wanted: bool
) -> None:
    assert rule.wants(topic, partition) == wanted


@pytest.mark.parametrize("times", [1, 3, None])
def test_rule_is_spent_after_its_number_of_hits(times: int | None) -> None:
    rule = Rule(Kind.DELAY, (), times=times)
    for _ in range(times or 200):
        assert rule.matches("Produce", None)
        rule.hit(HIT)
    assert rule.spent == (times is not None)
    assert len(rule.hits) == min(rule.count, MOST_HITS_KEPT)


def test_copy_of_a_rule_does_not_follow_later_hits() -> None:
    rule = Rule(Kind.DELAY, (), times=5)
    rule.hit(HIT)
    copy = rule.copy()
    rule.hit(HIT)
    assert (copy.count, copy.hits) == (1, [HIT])


def test_rule_and_hit_are_shown_with_their_arguments() -> None:
    rule = Rule(Kind.FAIL, ("Produce", "Fetch"), 2, "t", 0, client_id="c", error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert str(rule) == "fail(Produce|Fetch, NOT_LEADER_OR_FOLLOWER, topic='t', partition=0, client_id='c', times=2)"
    assert str(Rule(Kind.DELAY, (), None, seconds=1.5)) == "delay(any request, 1.5 s, times=None)"
    assert str(HIT) == "+0.500 s: Produce of t-0 by client 'c'"


@given(st.sampled_from(sorted(API.values(), key=lambda info: info.name)), st.data())
def test_name_of_an_api_is_found_in_any_spelling(info: Any, data: st.DataObject) -> None:
    name: str = info.name
    spelling = data.draw(st.sampled_from([name.lower(), name.upper(), "_".join(name)]))
    assert checked_apis(spelling) == checked_apis([spelling]) == (name,)


def test_apis_with_topics_exist() -> None:
    assert set(checked_apis(sorted(TOPIC_APIS))) == TOPIC_APIS


@pytest.mark.parametrize(("name", "problem"), [("Prodce", "similar: .*Produce"), ("xyzzy", "no API 'xyzzy'$")])
def test_unknown_api_is_an_error_with_similar_names(name: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        checked_apis(("Fetch", name))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("not_leader_or_follower", ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("INVALID_TOPIC", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("invalid_topic_exception", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (6, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.NONE, ErrorCode.NONE),
    ],
)
def test_error_is_kafkas_name_or_number(error: str | int, code: ErrorCode) -> None:
    assert checked_error(error) is code


@pytest.mark.parametrize(
    ("error", "problem"), [("NOT_LEADER", "similar: .*NOT_LEADER_OR_FOLLOWER"), ("xyzzy", "'xyzzy'$"), (9999, "9999")]
)
def test_unknown_error_is_rejected(error: str | int, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        checked_error(error)


# -- arguments -------------------------------------------------------------------------------------------------------


def test_topic_configs_may_have_dots_or_underscores() -> None:
    check_topic_configs(["retention_ms", "retention.ms", "min_insync_replicas"], ["partitions"])
    check("topic", [], ["partitions"])
    check("topic", iter(["partitions"]), iter(["partitions"]))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("log.retention.ms", "the topic config is 'retention.ms'"),
        ("log_cleanup_policy", "the topic config is 'cleanup_policy'"),
        ("partitons", "there is no argument 'partitons': did you mean 'partitions'"),
        ("segment_byte", "did you mean 'segment_bytes'"),
    ],
)
def test_wrong_topic_config_is_an_error_in_the_spelling_of_the_call(name: str, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        check_topic_configs(["retention_ms", name], ["partitions"])


# -- waiting, clock, records -----------------------------------------------------------------------------------------


def test_waiting_returns_the_first_true_result() -> None:
    answers: Iterator[object] = iter([0, "", None, "found", "later"])
    assert wait_until(lambda: next(answers)) == "found"
    assert next(answers) == "later"


@pytest.mark.parametrize("what", ["the thing", lambda: "the thing"])
def test_waiting_ends_with_a_description(what: object) -> None:
    with pytest.raises(NotInTime, match=r"^Not within 0\.01 s: the thing$"):
        wait_until(lambda: False, 0.01, what=what)  # type: ignore[arg-type]


@given(st.lists(st.integers(-(10**9), 10**9), max_size=8))
def test_steady_clock_never_goes_back_and_the_wall_clock_does(steps: list[int]) -> None:
    clock = MovableClock()
    for step in steps:
        before = clock.monotonic_ms()
        clock.advance(step)
        assert clock.monotonic_ms() >= before + max(step, 0)
    assert clock.wall_ahead_ms == sum(steps)
    clock.reset()
    assert clock.wall_ahead_ms == 0
    assert clock.steady_ahead_ms == sum(step for step in steps if step > 0)


def test_text_and_json_of_a_record() -> None:
    record = Record("t", 0, 0, 0, None, b'{"a": 1}', [])
    assert (record.text, record.json) == ('{"a": 1}', {"a": 1})
    assert (record._replace(value=None).text, record._replace(value=None).json) == ("", None)


# -- messages --------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.lists(st.one_of(st.none(), st.binary(max_size=2000), st.tuples(st.integers(), st.text("ab")))))
def test_messages_arrive_complete_and_in_order(messages: list[object]) -> None:
    left, right = socket.socketpair()
    sender, receiver = Pipe(left), Pipe(right)
    try:
        for message in messages:
            sender.send(message)
        assert [receiver.receive(5) for _ in messages] == messages
    finally:
        sender.close()
        receiver.close()


@pytest.mark.parametrize("sent", [b"", b"\0\0", struct.pack(">I", 10) + b"short"])
def test_closed_end_is_an_error_also_within_a_message(sent: bytes) -> None:
    left, right = socket.socketpair()
    receiver = Pipe(right)
    try:
        left.sendall(sent)
        with pytest.raises(TimeoutError):
            receiver.receive(0.01)
        left.close()
        with pytest.raises(EOFError):
            receiver.receive(5)
    finally:
        receiver.close()

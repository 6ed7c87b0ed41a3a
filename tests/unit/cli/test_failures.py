"""The messages of the command about exceptions of clients, and the words that stand for states."""

from __future__ import annotations

import io

import pytest

from ottla.cli.failures import explain
from ottla.cli.names import check_exists, confirm, is_pattern, members_of, missing
from ottla.clients import errors
from ottla.clients.admin.core import PartialFailure
from ottla.clients.admin.model import GroupState, GroupType
from ottla.common.errors import ErrorCode
from ottla.common.failure import Failure
from ottla.common.ids import TopicPartition


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (errors.UnknownTopicOrPartition("x"), "`ottla topic list` shows"),
        (errors.GroupNotFound("x"), "`ottla group list` shows"),
        (errors.NonEmptyGroup("x"), "Stop its members first"),
        (errors.TopicAlreadyExists("x"), "--if-not-exists"),
        (errors.ConnectionLost("x"), "check before you retry"),
        (errors.RequestTimedOut("x"), "check before you retry"),
        (errors.BrokerUnavailable("127.0.0.1:1: connection refused"), "Is a broker running there?"),
        (errors.BrokerUnavailable("127.0.0.1:1 does not answer"), "Is it the port of a broker?"),
        (errors.BrokerUnavailable("x: the name resolves to nothing"), "Check the name"),
        (errors.BrokerUnavailable("x: the TLS handshake failed"), "-X security.protocol=PLAINTEXT"),
        (errors.ClientError("Cannot update these configs dynamically: [log.dirs]"), "server.properties"),
        (errors.ClientError("Cannot update these configs dynamically: [x] (restart it)"), ""),
        (errors.TlsFailed("ssl.ca.location: no such file"), ""),
        (errors.ClientError("x"), ""),
    ],
)
def test_error_has_the_next_step_if_one_is_known(error: errors.ClientError, advice: str) -> None:
    failure = explain(error)
    assert failure.problem == str(error)
    assert failure.exit_code == 1
    assert advice in " ".join(failure.advice)
    assert bool(failure.advice) == bool(advice)


def test_wrong_setting_is_a_usage_error_in_one_line() -> None:
    failure = explain(errors.ConfigurationError("acks is 7;\n  it must be all, 0 or 1"))
    assert (failure.problem, failure.exit_code) == ("acks is 7; it must be all, 0 or 1", 2)
    assert explain(errors.ClientError("")).problem == "ClientError"


@pytest.mark.parametrize(
    ("count", "succeeded", "problem", "lines"),
    [
        (1, 0, "t0: it exists", 0),
        (1, 3, "t0: it exists", 0),
        (3, 1, "3 of 4 failed", 3),
        (12, 0, "12 of 12 failed", 11),
    ],
)
def test_partial_failure_shows_at_most_ten_errors(count: int, succeeded: int, problem: str, lines: int) -> None:
    failed = {f"t{index}": errors.error_for(ErrorCode.INVALID_PARTITIONS, "it exists") for index in range(count)}
    failure = explain(PartialFailure.of(failed, dict.fromkeys(range(succeeded))))
    assert failure.problem == problem
    assert len(failure.advice) == lines
    if count > 10:
        assert failure.advice[-1] == "and 2 more"


def test_key_that_the_error_names_is_not_repeated() -> None:
    failed = {
        "orders": errors.ClientError("Topic orders exists"),
        TopicPartition("t", 1): errors.ClientError("no leader"),
    }
    assert explain(PartialFailure.of(failed, {})).advice == ("Topic orders exists", "t-1: no leader")


# -- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "pattern", "problem", "advice"),
    [
        ([], False, "there is no group 'order'", "No group exists yet"),
        (["orders"], False, "there is no group 'order'", "Did you mean 'orders'?"),
        (["xyzzy"], False, "there is no group 'order'", "`ottla group list` shows"),
        (["orders"], True, "no group matches 'order'", "`ottla group list` shows"),
    ],
)
def test_missing_name_has_advice_for_its_cause(known: list[str], pattern: bool, problem: str, advice: str) -> None:
    found = missing("order", known, "group", is_pattern=pattern)
    assert found[0] == problem
    assert advice in found[1]
    with pytest.raises(Failure):
        check_exists("order", iter(known), "group")
    check_exists("order", iter([*known, "order"]), "group")


@pytest.mark.parametrize(
    ("name", "regex", "can_match_several"),
    [("a", False, False), ("a", True, True), ("a*", False, True), ("a?", False, True), ("[ab]", False, True)],
)
def test_name_with_a_wildcard_can_match_several(name: str, regex: bool, can_match_several: bool) -> None:
    assert is_pattern(name, regex=regex) == can_match_several


@pytest.mark.parametrize(
    ("words", "states"),
    [
        ([], []),
        (["stable"], [GroupState.STABLE]),
        (["Stable,EMPTY"], [GroupState.STABLE, GroupState.EMPTY]),
        (["preparing-rebalance", "not_ready"], [GroupState.PREPARING_REBALANCE, GroupState.NOT_READY]),
        (["PreparingRebalance , dead"], [GroupState.PREPARING_REBALANCE, GroupState.DEAD]),
    ],
)
def test_states_are_words_in_any_case_with_commas(words: list[str], states: list[GroupState]) -> None:
    assert members_of(GroupState, words, "state") == states


@pytest.mark.parametrize(
    ("word", "advice"),
    [
        ("stabel", "Did you mean Stable?"),
        ("unknown", ""),
        ("", "It may be PreparingRebalance, "),
        ("empty,", "It may be"),
    ],
)
def test_word_that_is_not_a_state_is_a_usage_error(word: str, advice: str) -> None:
    with pytest.raises(Failure, match="no state is") as caught:
        members_of(GroupState, [word], "state")
    assert caught.value.exit_code == 2
    assert advice in caught.value.advice[0]


def test_types_of_groups_are_found_by_their_words() -> None:
    assert members_of(GroupType, ["Consumer,share"], "type") == [GroupType.CONSUMER, GroupType.SHARE]


class Terminal(io.StringIO):
    """A text stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("answer", "agreed"),
    [("y\n", True), (" YES \n", True), ("n\n", False), ("\n", False), ("", False), ("yeah\n", False)],
)
def test_person_at_a_terminal_must_confirm(answer: str, agreed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    monkeypatch.setattr("sys.stderr", shown)
    if agreed:
        confirm("Delete orders?", "nothing was deleted", "--yes", yes=False)
    else:
        with pytest.raises(Failure, match="nothing was deleted"):
            confirm("Delete orders?", "nothing was deleted", "--yes", yes=False)
    assert shown.getvalue() == "Delete orders? [y/N] "


@pytest.mark.parametrize(("yes", "is_terminal"), [(True, True), (False, False)])
def test_script_and_option_yes_are_not_asked(yes: bool, is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal("n\n") if is_terminal else io.StringIO("n\n"))
    monkeypatch.setattr("sys.stderr", shown)
    confirm("Delete orders?", "nothing was deleted", "--yes", yes=yes)
    assert not shown.getvalue()

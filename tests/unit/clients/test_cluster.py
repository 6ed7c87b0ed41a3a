"""What a client believes of the cluster: newer answers win, older leaders do not, refreshes come in time."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.clients.cluster import Backoff, ClusterView
from ottla.common.ids import ZERO_UUID

from .metadata import metadata, topic_row


def known(*leaders: int, epoch: int = 5) -> ClusterView:
    view = ClusterView(max_age_ms=1000, backoff=Backoff(100, 400))
    view.apply(metadata(topic_row("t", leaders=leaders, epoch=epoch)), 0)
    return view


def test_an_answer_tells_leaders_partitions_and_ids() -> None:
    view = known(1, 2)
    assert view.partitions("t") == [0, 1]
    assert (view.leader("t", 0), view.leader("t", 1), view.leader_epoch("t", 1)) == (1, 2, 5)
    assert view.topic_name(view.topic_id("t")) == "t"
    assert view.controller_id == 1
    assert view.partitions("u") is None
    assert view.leader("u", 0) is None
    assert view.leader("t", 7) is None
    assert view.topic_id("u") == ZERO_UUID
    view.validate()


def test_a_late_answer_of_an_older_epoch_does_not_bring_the_old_leader_back() -> None:
    view = known(1, epoch=5)
    view.apply(metadata(topic_row("t", leaders=[2], epoch=4)), 1)
    assert (view.leader("t", 0), view.leader_epoch("t", 0)) == (1, 5)
    view.apply(metadata(topic_row("t", leaders=[2], epoch=6)), 2)
    assert view.leader("t", 0) == 2


def test_a_topic_made_anew_starts_with_fresh_epochs() -> None:
    view = known(1, epoch=5)
    old = view.topic_id("t")
    view.apply(metadata(topic_row("t", leaders=[2], epoch=0, topic_id=b"n" * 16)), 1)
    assert (view.leader("t", 0), view.topic_name(old)) == (2, None)
    view.validate()


def test_a_deleted_topic_is_gone_and_its_error_kept() -> None:
    view = known(1)
    view.apply(metadata(topic_row("t", error=3)), 1)
    assert view.partitions("t") is None
    assert view.topic_errors == {"t": 3}
    view.apply(metadata(topic_row("t", leaders=[1])), 2)
    assert view.topic_errors == {}


def test_a_complete_answer_drops_what_it_does_not_have() -> None:
    view = known(1)
    view.apply(metadata(topic_row("u", leaders=[1])), 1)
    assert set(view.topics) == {"t", "u"}
    view.apply(metadata(topic_row("u", leaders=[1])), 2, is_complete=True)
    assert set(view.topics) == {"u"}
    view.validate()


def test_it_is_stale_at_its_age_and_at_once_when_never_asked() -> None:
    assert ClusterView().stale(0)
    view = known(1)
    assert not view.stale(999)
    assert view.stale(1000)


def test_an_invalid_view_is_asked_for_after_a_backoff_that_grows() -> None:
    view = known(1)
    view.invalidate()
    assert view.refresh_due_at_ms() == 100
    due = []
    for _ in range(4):
        view.failed(0)
        due.append(view.refresh_due_at_ms())
    assert due == [100, 200, 400, 400]
    view.apply(metadata(), 500)
    assert view.refresh_due_at_ms() == 1500


def test_a_partition_without_leader_makes_it_ask_again_soon() -> None:
    view = known(1, -1)
    assert view.leader("t", 1) is None
    assert view.refresh_due_at_ms() == 100
    view.apply(metadata(topic_row("t", leaders=[1, 2], epoch=6)), 100)
    assert view.refresh_due_at_ms() == 1100


def test_a_hint_of_a_newer_leader_is_taken_an_older_one_not() -> None:
    view = known(1, epoch=5)
    assert not view.set_leader("t", 0, 2, 5)
    assert not view.set_leader("t", 0, 9, 6)
    assert view.set_leader("t", 0, 2, 6)
    assert view.leader("t", 0) == 2


@given(st.integers(1, 60), st.integers(0, 2**32))
def test_backoff_stays_within_a_fifth_of_its_bounds(failures: int, seed: int) -> None:
    delay = Backoff(50, 1000).delay_ms(failures, random.Random(seed).random())
    assert 50 * 0.8 <= delay <= 1000 * 1.2


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_answers_ends_at_the_newest_epoch(seed: int) -> None:
    chance = random.Random(seed)
    answers = [(epoch, 1 + epoch % 2) for epoch in range(10)]
    chance.shuffle(answers)
    view = ClusterView()
    for now, (epoch, leader) in enumerate(answers):
        view.apply(metadata(topic_row("t", leaders=[leader], epoch=epoch)), now)
        view.validate()
    assert (view.leader("t", 0), view.leader_epoch("t", 0)) == (2, 9)

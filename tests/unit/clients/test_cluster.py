"""A client's view of the cluster: newer leader epochs win, and refreshes are due in time."""

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


def test_view_has_leaders_partitions_and_ids_of_a_response() -> None:
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


def test_late_response_with_an_older_epoch_does_not_restore_the_old_leader() -> None:
    view = known(1, epoch=5)
    view.apply(metadata(topic_row("t", leaders=[2], epoch=4)), 1)
    assert (view.leader("t", 0), view.leader_epoch("t", 0)) == (1, 5)
    view.apply(metadata(topic_row("t", leaders=[2], epoch=6)), 2)
    assert view.leader("t", 0) == 2


def test_recreated_topic_starts_with_new_epochs() -> None:
    view = known(1, epoch=5)
    old = view.topic_id("t")
    view.apply(metadata(topic_row("t", leaders=[2], epoch=0, topic_id=b"n" * 16)), 1)
    assert (view.leader("t", 0), view.topic_name(old)) == (2, None)
    view.validate()


def test_deleted_topic_is_removed_and_its_error_stored() -> None:
    view = known(1)
    view.apply(metadata(topic_row("t", error=3)), 1)
    assert view.partitions("t") is None
    assert view.topic_errors == {"t": 3}
    view.apply(metadata(topic_row("t", leaders=[1])), 2)
    assert view.topic_errors == {}


def test_complete_response_removes_missing_topics() -> None:
    view = known(1)
    view.apply(metadata(topic_row("u", leaders=[1])), 1)
    assert set(view.topics) == {"t", "u"}
    view.apply(metadata(topic_row("u", leaders=[1])), 2, is_complete=True)
    assert set(view.topics) == {"u"}
    view.validate()


def test_view_is_stale_at_its_maximum_age_and_before_the_first_response() -> None:
    assert ClusterView().stale(0)
    view = known(1)
    assert not view.stale(999)
    assert view.stale(1000)


def test_invalid_view_is_refreshed_after_a_growing_backoff() -> None:
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


def test_partition_without_a_leader_causes_an_early_refresh() -> None:
    view = known(1, -1)
    assert view.leader("t", 1) is None
    assert view.refresh_due_at_ms() == 100
    view.apply(metadata(topic_row("t", leaders=[1, 2], epoch=6)), 100)
    assert view.refresh_due_at_ms() == 1100


def test_hint_of_a_newer_leader_is_applied_and_an_older_one_is_not() -> None:
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
def test_any_order_of_responses_ends_at_the_newest_epoch(seed: int) -> None:
    chance = random.Random(seed)
    answers = [(epoch, 1 + epoch % 2) for epoch in range(10)]
    chance.shuffle(answers)
    view = ClusterView()
    for now, (epoch, leader) in enumerate(answers):
        view.apply(metadata(topic_row("t", leaders=[leader], epoch=epoch)), now)
        view.validate()
    assert (view.leader("t", 0), view.leader_epoch("t", 0)) == (2, 9)

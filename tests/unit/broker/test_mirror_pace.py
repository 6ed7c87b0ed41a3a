"""How often a mirror asks its source: at the interval, soon after changes, and ever later after errors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from ottla.broker.mirrors.mirror import EPOCH_FENCING, FAILED, has_changed, is_fencing, reason_to_wait
from ottla.broker.mirrors.pace import Pace
from ottla.metadata.image import MetadataImage
from ottla.metadata.mirrors import MIRRORING


def image(**topics: object) -> MetadataImage:
    return cast("MetadataImage", SimpleNamespace(topics_by_name=topics))


def test_topics_and_groups_are_due_at_the_interval() -> None:
    pace = Pace(5000)
    assert pace.is_due(10)
    assert pace.wait_s(10) == 0
    pace.completed(10)
    assert not pace.is_due(5009)
    assert pace.wait_s(3010) == 2
    assert pace.is_due(5010)
    assert pace.wait_s(6000) == 0


def test_retries_that_follow_each_other_are_further_apart_up_to_the_interval() -> None:
    pace = Pace(1000)
    assert pace.pause_s() == 0.1
    pauses = []
    for _ in range(5):
        pace.retry()
        pauses.append(pace.pause_s())
    assert pauses == [0.2, 0.4, 0.8, 1.0, 1.0]
    assert pace.pause_s() == 0.1


def test_only_changes_of_its_own_topics_concern_a_mirror() -> None:
    same, before, after = object(), object(), object()
    assert not has_changed(["orders"], image(orders=same, other=before), image(orders=same, other=after))
    assert has_changed(["orders"], image(orders=before), image(orders=after))
    assert has_changed(["orders"], image(), image(orders=after))
    assert has_changed(["orders"], image(orders=before), image())


def test_only_partitions_that_wait_for_this_cluster_are_urgent() -> None:
    assert not is_fencing([(FAILED, "the topic was deleted"), (MIRRORING, "no leader")])
    assert is_fencing([(FAILED, ""), (EPOCH_FENCING, "")])


def test_partition_that_the_source_cannot_serve_has_a_next_step() -> None:
    rows: tuple[Any, ...] = (None, SimpleNamespace(leader_id=-1))
    for row in rows:
        _, problem = reason_to_wait(cast("Any", None), row) or ("", "")
        assert "; " in problem


def test_promotion_makes_groups_due_at_once_though_a_comparison_runs() -> None:
    pace = Pace(5000)
    assert pace.is_due(10)
    pace.hurry()
    pace.completed(10)
    assert pace.wake.is_set()
    assert pace.is_due(11)
    pace.completed(11)
    assert not pace.is_due(12)

"""FrameQuota: connections that pipeline share an event loop iteration."""

import pytest

from ottla.network.frame_quota import FRAMES_PER_ROUND, LEAST_FRAMES, MOST_FRAMES, FrameQuota


@pytest.mark.parametrize(
    ("connections", "share"), [(1, MOST_FRAMES), (10, MOST_FRAMES), (40, FRAMES_PER_ROUND // 40), (5_000, LEAST_FRAMES)]
)
def test_next_round_is_divided_by_the_connections_of_this_one(connections: int, share: int) -> None:
    quota = FrameQuota()
    assert quota.is_untouched
    for _ in range(connections):
        quota.use(2, is_first=True)
    assert not quota.is_untouched
    quota.next_round()
    assert quota.is_untouched
    assert quota.per_connection == share
    assert quota.is_crowded == (connections > 8)


def test_connection_counts_once_per_round() -> None:
    quota = FrameQuota()
    for number in range(50):
        quota.use(2, is_first=number == 0)
    quota.next_round()
    assert quota.per_connection == MOST_FRAMES


def test_exceeded_round_leaves_the_minimum_for_its_other_connections() -> None:
    quota = FrameQuota()
    for _ in range(FRAMES_PER_ROUND // MOST_FRAMES + 1):
        quota.use(MOST_FRAMES, is_first=True)
    assert quota.per_connection == LEAST_FRAMES

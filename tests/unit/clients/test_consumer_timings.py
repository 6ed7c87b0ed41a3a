"""Times of polls and rebalances that a consumer pushes, at given times."""

from __future__ import annotations

from ottla.clients.consumer.timings import PollTimes, RebalanceTimes


def test_idle_share_is_the_average_of_polls_and_the_pauses_before_them() -> None:
    polls = PollTimes()
    for begin_ms, end_ms in ((100, 200), (500, 600), (600, 600)):
        polls.begin(begin_ms)
        polls.end(end_ms)
    # The first poll has no pause before it, the second one a pause of 300 ms; the last one took no time.
    assert polls.taken() == {"poll-idle-ratio-avg": (1 + 0.25) / 2}
    assert polls.taken() == {}
    polls.begin(700)
    polls.end(800)
    assert polls.taken() == {"poll-idle-ratio-avg": 0.5}


def test_poll_that_began_before_the_subscription_does_not_count() -> None:
    polls = PollTimes()
    polls.end(100)
    assert polls.taken() == {}
    polls.begin(200)
    polls.end(300)
    assert polls.taken() == {"poll-idle-ratio-avg": 1}


def observe(rebalances: RebalanceTimes, *states: tuple[float, str]) -> None:
    for now_ms, state in states:
        rebalances.observe(now_ms, state, {"running", "joining"}, {"complete"})


def test_rebalance_takes_from_its_first_state_to_its_end() -> None:
    rebalances = RebalanceTimes()
    observe(rebalances, (0, "complete"), (100, "running"), (300, "running"), (350, "joining"), (400, "complete"))
    observe(rebalances, (900, "complete"))
    observe(rebalances, (1_000, "running"), (1_100, "complete"))
    assert rebalances.taken() == {"rebalance-latency-avg": 200, "rebalance-latency-max": 300}
    assert rebalances.taken() == {}


def test_rebalance_that_failed_is_not_counted() -> None:
    rebalances = RebalanceTimes()
    observe(rebalances, (100, "running"), (200, "outside"), (300, "complete"))
    assert rebalances.taken() == {}
    observe(rebalances, (1_000, "running"), (1_010, "complete"))
    assert rebalances.taken()["rebalance-latency-max"] == 10

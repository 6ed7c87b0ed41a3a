"""A client that follows KIP-227 reads every record once and in order, and never waits while data is available."""

from __future__ import annotations

import tempfile
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.common.completion import Completion
from tests.conftest import DRAWN_EXAMPLES

from .harness import open_harness
from .test_fetch import Client, Key

KEYS = [("t", index) for index in range(4)]
ACTIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 3), st.integers(1, 600)),
    st.tuples(st.just("fetch"), st.sampled_from([0, 1, 300, 100_000]), st.sampled_from([1, 200, 700, 1 << 20])),
    st.tuples(st.just("forget"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("add"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("lose session"), st.just(0), st.just(0)),
    st.tuples(st.just("lose answer"), st.just(0), st.just(0)),
    st.tuples(st.just("time"), st.integers(1, 400), st.just(0)),
)
WAIT_MS = 1000


class Story:
    """One client, at most one long poll, and the records that the client has read."""

    def __init__(self, harness: Any) -> None:
        self.harness = harness
        self.client = Client(harness, KEYS)
        self.written: dict[Key, list[bytes]] = {key: [] for key in KEYS}
        self.seen: dict[Key, list[bytes | None]] = {key: [] for key in KEYS}
        # The offsets at which forgotten partitions are added again.
        self.parked: dict[Key, int] = {}
        self.waiting: Completion[Any] | None = None

    def do(self, action: tuple[str, int, int]) -> None:
        name, first, second = action
        if name == "append":
            key = KEYS[first]
            value = b"%d:%d " % (first, len(self.written[key])) + b"x" * second
            self.written[key].append(value)
            self.harness.append("t", value, index=first)
        elif name == "time":
            self.harness.loop.advance(first)
        self.harness.loop.run()
        self.receive()
        if self.waiting is not None:
            return
        if name == "fetch":
            self.fetch(min_bytes=first, max_bytes=second)
        elif name == "forget" and KEYS[first] in self.client.offsets and len(self.client.offsets) > 1:
            self.parked[KEYS[first]] = self.client.offsets[KEYS[first]]
            self.client.forget(KEYS[first])
        elif name == "add" and KEYS[first] in self.parked:
            if KEYS[first] in self.client.forgotten:
                self.client.forgotten.remove(KEYS[first])
            self.client.seek(KEYS[first], self.parked.pop(KEYS[first]))
        elif name == "lose session":
            self.harness.broker.fetch_sessions.remove(self.client.id)
        elif name == "lose answer":
            # The connection is lost: the client requests a new session instead of the old one.
            self.client.send(min_bytes=0)
            self.client.epoch = 0

    def fetch(self, **limits: int) -> None:
        answer = self.client.send(max_wait_ms=WAIT_MS, **limits)
        if isinstance(answer, Completion):
            self.waiting = answer
        else:
            self.take(answer)

    def receive(self) -> None:
        if self.waiting is not None and self.waiting.done:
            answer, self.waiting = self.waiting.result(), None
            self.take(answer)

    def take(self, answer: Any) -> None:
        if answer.error_code:
            self.client.id = self.client.epoch = 0
            self.client.forgotten = []
            return
        for key, records in self.client.take(answer).items():
            self.seen[key] += [value for _, value in records]
            assert self.seen[key] == self.written[key][: len(self.seen[key])]

    def catch_up(self) -> None:
        """Read to the end: a fetch must respond at once, with data, while data is available."""
        self.harness.loop.advance(WAIT_MS)
        self.receive()
        assert self.waiting is None
        for key, offset in self.parked.items():
            if key in self.client.forgotten:
                self.client.forgotten.remove(key)
            self.client.seek(key, offset)
        total = sum(map(len, self.written.values()))
        for _ in range(total + 2):
            if self.seen == self.written:
                break
            before = sum(map(len, self.seen.values()))
            was_lost = self.client.epoch and self.client.id not in self.harness.broker.fetch_sessions._sessions
            self.fetch(min_bytes=1, max_bytes=1)
            assert self.waiting is None, "the fetch waits although data is available"
            assert was_lost or sum(map(len, self.seen.values())) > before, (
                "a response without data although data is available"
            )
        assert self.seen == self.written
        self.fetch(min_bytes=1, max_bytes=700)
        if self.waiting is None:  # the first response of a new session may report all partitions
            self.fetch(min_bytes=1, max_bytes=700)
        assert self.waiting is not None, "a response without changes"


@settings(max_examples=DRAWN_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(ACTIONS, max_size=40))
def test_every_record_is_read_once_and_in_order(actions: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory, open_harness(directory) as harness:
        harness.create("t", len(KEYS))
        story = Story(harness)
        for action in actions:
            story.do(action)
        story.catch_up()

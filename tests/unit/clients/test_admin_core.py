"""One admin call against simulated brokers: routing, retries and the end of the call."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.clients.admin import Admin, AsyncAdmin, PartialFailure
from ottla.clients.admin.core import Call, Progress, Round, Route
from ottla.clients.admin.logs import LogMethods
from ottla.clients.cluster import Backoff, ClusterView
from ottla.clients.errors import (
    BrokerError,
    BrokerUnavailable,
    ClientError,
    ConnectionLost,
    RequestTimedOut,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
    error_for,
)
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.protocol.message import Message
from ottla.protocol.messages.heartbeat import HeartbeatRequest

from .metadata import metadata, topic_row

DEADLINE_MS = 10_000
BACKOFF = Backoff(100, 1000)


def call(route: Route, keys: Sequence[Any] | None, group: str | None = None) -> Call[Any, Any]:
    def request(asked: Sequence[Any]) -> Message:
        return HeartbeatRequest(group_id=",".join(map(str, asked)))

    def read(answer: Any, _: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        yield from answer.items()

    return Call(route, keys, request, read, group=group)


class Story:
    """A call, a view of the cluster, and a clock that advances only when the call waits."""

    def __init__(self, the_call: Call[Any, Any], view: ClusterView) -> None:
        self.view = view
        self.now_ms = 0.0
        self.progress: Progress[Any, Any] = Progress(the_call, DEADLINE_MS, BACKOFF)

    def next(self) -> Round[Any]:
        step = self.progress.next_round(self.view, self.now_ms)
        assert step is not None, f"it ended: {self.progress.outcome}"
        self.now_ms += step.wait_ms
        return step

    def ended(self) -> bool:
        return self.progress.next_round(self.view, self.now_ms) is None

    def answer(self, send: Any, **values: Any) -> None:
        self.progress.answered(send, {key: values[str(key)] for key in send.keys})  # type: ignore[arg-type]


@pytest.fixture
def view() -> ClusterView:
    known = ClusterView()
    known.apply(metadata(topic_row("t", leaders=[1, 2, 1]), nodes=[1, 2], controller=2), 0)
    return known


T0, T1, T2 = (TopicPartition("t", i) for i in range(3))
P0, P1, P2 = "t-0", "t-1", "t-2"


def test_broker_that_leaves_the_cluster_does_not_hold_up_a_call_to_all_brokers(view: ClusterView) -> None:
    story = Story(call(Route.BROKERS, None), view)
    first, second = story.next().sends
    story.answer(first, **{str(first.node_id): "answer"})
    story.progress.failed(second, ConnectionLost("lost"))
    assert story.next().refresh is not None
    view.apply(metadata(nodes=[1], controller=1), 0)
    assert story.ended()
    assert story.progress.outcome.all() == {1: "answer"}


def test_each_leader_gets_one_request_for_all_its_partitions(view: ClusterView) -> None:
    story = Story(call(Route.LEADERS, [T0, T1, T2]), view)
    sends = story.next().sends
    assert {send.node_id: send.keys for send in sends} == {1: (T0, T2), 2: (T1,)}
    for send in sends:
        story.answer(send, **{P0: 10, P1: 11, P2: 12})
    assert story.ended()
    assert story.progress.outcome.all() == {T0: 10, T1: 11, T2: 12}


def test_partition_is_retried_at_its_new_leader(view: ClusterView) -> None:
    story = Story(call(Route.LEADERS, [T0, T1]), view)
    first, second = story.next().sends
    story.answer(first, **{P0: error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER)})
    story.answer(second, **{P1: 11})
    step = story.next()
    assert step.refresh == frozenset({"t"})
    assert step.wait_ms == 100
    view.apply(metadata(topic_row("t", leaders=[2, 2, 1], epoch=1), nodes=[1, 2]), story.now_ms)
    (again,) = story.next().sends
    assert (again.node_id, again.keys) == (2, (T0,))
    story.answer(again, **{P0: 10})
    assert story.ended()
    assert story.progress.outcome.all() == {T1: 11, T0: 10}


def test_unknown_topic_is_retried_a_few_times_then_reported(view: ClusterView) -> None:
    story = Story(call(Route.LEADERS, [TopicPartition("nope", 0)]), view)
    rounds = 0
    while (step := story.progress.next_round(view, story.now_ms)) is not None:
        rounds += 1
        story.now_ms += step.wait_ms
        assert step.refresh == frozenset({"nope"})
        view.apply(metadata(topic_row("nope", error=3), nodes=[1, 2]), story.now_ms)
    assert rounds == 3
    with pytest.raises(UnknownTopicOrPartition, match="nope"):
        story.progress.outcome.one()
    assert story.now_ms < 1000


def test_unknown_partition_error_includes_the_partition_count(view: ClusterView) -> None:
    story = Story(call(Route.LEADERS, [TopicPartition("t", 9)]), view)
    while (step := story.progress.next_round(view, story.now_ms)) is not None:
        story.now_ms += step.wait_ms
    with pytest.raises(UnknownTopicOrPartition, match="no partition 9, it has 3"):
        story.progress.outcome.one()


def test_moved_coordinator_is_looked_up_again(view: ClusterView) -> None:
    story = Story(call(Route.COORDINATORS, ["g", "h"]), view)
    assert story.next().coordinators == ("g", "h")
    story.progress.found("g", 1)
    story.progress.found("h", 1)
    (send,) = story.next().sends
    assert (send.node_id, send.keys) == (1, ("g", "h"))
    story.answer(send, g=error_for(ErrorCode.NOT_COORDINATOR), h="fine")
    step = story.next()
    assert (step.forget, step.coordinators, step.wait_ms) == (("g",), ("g",), 100)
    story.progress.found("g", 2)
    (send,) = story.next().sends
    assert (send.node_id, send.keys) == (2, ("g",))
    story.answer(send, g="fine")
    assert story.ended()
    assert story.progress.outcome.all() == {"h": "fine", "g": "fine"}


def test_group_without_a_coordinator_does_not_fail_other_groups(view: ClusterView) -> None:
    story = Story(call(Route.COORDINATORS, ["g", "h"]), view)
    story.next()
    story.progress.found("g", 1)
    story.progress.not_found("h", BrokerError("no", code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    (send,) = story.next().sends
    story.answer(send, g="fine")
    assert story.ended()
    with pytest.raises(PartialFailure) as caught:
        story.progress.outcome.all()
    assert caught.value.results == {"g": "fine"}
    assert list(caught.value.errors) == ["h"]
    assert not caught.value.retriable


def test_request_goes_to_the_controller_or_to_any_broker_if_it_is_unknown(view: ClusterView) -> None:
    story = Story(call(Route.CONTROLLER, ["a"]), view)
    (send,) = story.next().sends
    assert send.node_id == 2
    story.answer(send, a=error_for(ErrorCode.NOT_CONTROLLER))
    step = story.next()
    assert step.refresh == frozenset()
    assert step.sends[0].node_id is None


def test_every_broker_gets_its_own_request(view: ClusterView) -> None:
    sends = Story(call(Route.BROKERS, None), view).next().sends
    assert [(send.node_id, send.keys) for send in sends] == [(1, (1,)), (2, (2,))]


def test_call_raises_the_last_error_at_the_deadline(view: ClusterView) -> None:
    story = Story(call(Route.CONTROLLER, ["a"]), view)
    waits = []
    while (step := story.progress.next_round(view, story.now_ms)) is not None:
        waits.append(step.wait_ms)
        story.now_ms += step.wait_ms
        (send,) = step.sends
        story.progress.failed(send, BrokerUnavailable("down"))
    assert waits[:5] == [0, 100, 200, 400, 800]
    assert max(waits) == 1000
    assert DEADLINE_MS - 1000 <= story.now_ms < DEADLINE_MS
    with pytest.raises(BrokerUnavailable, match="down"):
        story.progress.outcome.one()


def test_error_after_a_lost_connection_notes_the_earlier_attempt(view: ClusterView) -> None:
    story = Story(call(Route.CONTROLLER, ["a"]), view)
    (send,) = story.next().sends
    story.progress.failed(send, ConnectionLost("lost"))
    (send,) = story.next().sends
    story.answer(send, a=error_for(ErrorCode.TOPIC_ALREADY_EXISTS))
    assert story.ended()
    with pytest.raises(TopicAlreadyExists) as caught:
        story.progress.outcome.one()
    assert "lost its connection" in caught.value.__notes__[0]


def test_item_missing_in_the_response_is_an_error(view: ClusterView) -> None:
    story = Story(call(Route.CONTROLLER, ["a"]), view)
    (send,) = story.next().sends
    story.progress.answered(send, {"b": 1})  # type: ignore[arg-type]
    assert story.ended()
    with pytest.raises(BrokerError, match="nothing about a"):
        story.progress.outcome.one()


def test_deadline_in_the_past_ends_the_call_at_once(view: ClusterView) -> None:
    story = Story(call(Route.CONTROLLER, ["a"]), view)
    story.now_ms = DEADLINE_MS
    assert story.ended()
    with pytest.raises(RequestTimedOut):
        story.progress.outcome.one()


def test_partial_failure_is_an_exception_group_and_a_client_error() -> None:
    failure = PartialFailure.of({"a": TopicAlreadyExists("a is there")}, {"b": 1})
    assert isinstance(failure, ClientError)
    caught: list[Exception] = []
    try:
        raise failure
    except* TopicAlreadyExists as group:
        caught += group.exceptions
    assert [str(error) for error in caught] == ["a is there"]
    assert "1 of 2 failed: a: a is there" in str(failure)


def test_blocking_and_asyncio_admin_have_the_same_methods_signatures_and_docstrings() -> None:
    def public(admin: type) -> dict[str, Any]:
        return {name: member for name, member in vars(admin).items() if not name.startswith("_")}

    blocking, own, inherited = public(Admin), public(AsyncAdmin), public(LogMethods)
    assert [name for name in blocking if name not in inherited] == list(own)
    asynchronous = own | inherited
    assert set(blocking) == set(asynchronous)
    for name, method in asynchronous.items():
        assert inspect.iscoroutinefunction(method), name
        assert not inspect.iscoroutinefunction(blocking[name]), name
        assert inspect.signature(method) == inspect.signature(blocking[name]), name
        assert inspect.getdoc(method) == inspect.getdoc(blocking[name]), name
        assert inspect.getdoc(method), name
    assert inspect.signature(Admin.__init__) == inspect.signature(AsyncAdmin.__init__)


# -- any cluster -----------------------------------------------------------------------------------------------------

_KEYS = {
    Route.LEADERS: [TopicPartition(topic, index) for topic in ("t", "u", "gone") for index in range(3)],
    Route.COORDINATORS: ["g", "h", "i"],
    Route.BROKERS: [1, 2, 3],
    Route.ANY: ["a", "b"],
    Route.CONTROLLER: ["a", "b"],
}
_ANSWERS = ("value", "value", "retriable", "fatal", "missing", "twice", "foreign")
_REQUESTS = ("answered", "answered", "answered", "lost", "refused")


class Cluster:
    """Brokers that answer, fail, move leaders and lose connections as `data` says. A round trip takes 1 ms."""

    def __init__(self, data: st.DataObject, route: Route, keys: Sequence[Any]) -> None:
        self._draw = data.draw
        self.now_ms = 0.0
        self.view = ClusterView()
        self.refresh()
        self.progress: Progress[Any, Any] = Progress(call(route, keys), DEADLINE_MS, BACKOFF)
        self.given: dict[Any, list[Any]] = {}
        """The values that each key was answered with, in the order of the answers."""
        self.route = route

    def refresh(self) -> None:
        nodes = self._draw(st.lists(st.sampled_from([1, 2, 3]), min_size=1, unique=True))
        topics = self._draw(st.lists(st.sampled_from(["t", "u"]), unique=True))
        leaders = st.lists(st.sampled_from(nodes), min_size=1, max_size=3)
        rows = [topic_row(topic, leaders=self._draw(leaders), epoch=int(self.now_ms)) for topic in topics]
        self.view.apply(metadata(*rows, nodes=nodes, controller=self._draw(st.sampled_from([-1, *nodes]))), self.now_ms)

    def run(self) -> None:
        settled: set[Any] = set()
        while (step := self.progress.next_round(self.view, self.now_ms, 0.0)) is not None:
            assert self.now_ms < DEADLINE_MS, "the call goes on after its deadline"
            assert step.refresh is not None or step.coordinators or step.sends, "a round without an action"
            self.now_ms += step.wait_ms + 1
            if step.refresh is not None:
                self.refresh()
            for group in step.coordinators:
                if self._draw(st.integers(0, 9)):
                    self.progress.found(group, self._draw(st.sampled_from([1, 2, 3])))
                else:
                    self.progress.not_found(group, BrokerUnavailable("nothing listens"))
            sent = [key for send in step.sends for key in send.keys]
            assert len(sent) == len(set(sent)), "a key is in two requests of a round"
            assert not settled & set(sent), "a key is requested again after its end"
            for send in step.sends:
                self._answer(send)
            settled = {*self.progress.outcome.results, *self.progress.outcome.errors}

    def _answer(self, send: Any) -> None:
        how = self._draw(st.sampled_from(_REQUESTS))
        if how == "lost":
            self.progress.failed(send, ConnectionLost("lost"))
            return
        if how == "refused":
            self.progress.failed(send, BrokerUnavailable("refused"))
            return
        rows: list[tuple[Any, Any]] = []
        for key in send.keys:
            kind = self._draw(st.sampled_from(_ANSWERS))
            value = (key, self.now_ms)
            if kind == "retriable":
                rows.append((key, error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER)))
            elif kind == "fatal":
                rows.append((key, error_for(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)))
            elif kind != "missing":
                rows += [(key, value), (key, "the second answer about a key")][: 1 + (kind == "twice")]
                self.given.setdefault(key, []).append(value)
            if kind == "foreign":
                rows.append(("another key", "the call did not request it"))
        self.progress.answered(send, _Rows(rows))  # type: ignore[arg-type]


class _Rows:
    """A response with several rows for a key."""

    def __init__(self, rows: list[tuple[Any, Any]]) -> None:
        self.items = lambda: iter(rows)


@given(st.data(), st.sampled_from(list(_KEYS)))
def test_every_call_ends_in_time_with_one_outcome_for_each_key(data: st.DataObject, route: Route) -> None:
    keys = data.draw(st.lists(st.sampled_from(_KEYS[route]), max_size=5))
    cluster = Cluster(data, route, keys)
    cluster.run()
    outcome = cluster.progress.outcome
    assert {*outcome.results, *outcome.errors} == set(keys)
    assert not outcome.results.keys() & outcome.errors.keys()
    for key, value in outcome.results.items():
        assert value == cluster.given[key][-1]
    assert all(isinstance(error, ClientError) for error in outcome.errors.values())

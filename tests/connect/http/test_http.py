"""The HTTP source and sink against a server: repeated requests, pauses, acknowledgements, keys, refused records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from ottla.connect.api import ExactlyOnce, TopicPartition
from ottla.connect.connectors.http.client import place, retry_after_s, without_credentials
from ottla.connect.connectors.http.sink import HttpSinkTask
from ottla.connect.connectors.http.source import HttpSourceConnector, HttpSourceTask
from ottla.connect.errors import ConnectError, DataError, RetriableError
from tests.connect.http_server import Request, Response, http_server
from tests.connect.tasks import Sink, Source, sink_record

TP = TopicPartition("t", 0)
Serve = Callable[[Callable[[Request], Response]], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:
        yield lambda answer: stack.enter_context(http_server(answer))


def as_json(value: Any) -> Response:
    return Response(200, json.dumps(value).encode())


def source_of(url: str, **more: str) -> Source:
    settings = {name.replace("_", "."): value for name, value in more.items()}
    return Source(HttpSourceTask, {"url": url, "topic": "t", "poll.interval.ms": "1", **settings})


def values_of(source: Source, polls: int = 1) -> list[Any]:
    records = source.poll(polls)
    source.commit(records)
    return [each.value for each in records]


def test_cursor_is_repeated_until_its_records_are_committed(serve: Serve) -> None:
    asked: list[str] = []

    def answer(request: Request) -> Response:
        after = int(request.query.get("after", "0"))
        asked.append(request.query.get("after", ""))
        items = [{"id": each} for each in range(after, min(after + 3, 8))]
        return as_json({"data": {"items": items}, "cursor": after + len(items)})

    source = source_of(serve(answer), records_path="data.items")
    assert values_of(source) == [{"id": 0}, {"id": 1}, {"id": 2}]
    records = source.poll()
    source.commit(records[:2])  # a part of a response: the same request must be repeated
    source.start()
    assert values_of(source, 3) == [{"id": each} for each in range(3, 8)]
    assert asked[:3] == ["", "3", "3"]
    source.task.stop()


def test_pages_continue_within_a_page_that_grows(serve: Serve) -> None:
    rows = [{"id": each} for each in range(5)]

    def answer(request: Request) -> Response:
        page = int(request.query["page"])
        return as_json(rows[(page - 1) * 3 : page * 3])

    source = source_of(serve(answer), mode="page", parameter="page", page_size="3")
    assert values_of(source, 2) == rows
    rows += [{"id": 5}, {"id": 6}]
    source.start()
    assert values_of(source, 4) == [{"id": 5}, {"id": 6}]
    source.task.stop()


def test_records_with_the_same_time_are_read_once(serve: Serve) -> None:
    rows = [{"id": 2, "updated_at": 5}, {"id": 1, "updated_at": 4}]

    def answer(request: Request) -> Response:
        since = int(request.query.get("since", "0"))
        return as_json([each for each in rows if each["updated_at"] >= since])

    source = source_of(serve(answer), mode="since", parameter="since")
    assert [each["id"] for each in values_of(source)] == [1, 2]
    rows.append({"id": 3, "updated_at": 5})
    source.start()
    assert [each["id"] for each in values_of(source, 3)] == [3]
    source.task.stop()


def test_retry_after_pauses_requests(serve: Serve) -> None:
    answers = iter([Response(429, b"slow", {"retry-after": "3600"})])
    source = source_of(serve(lambda request: next(answers)) + "/x?token=secret")
    assert source.poll(2) == []
    assert "status 429: slow" in str(source.facts["waits for"])
    assert "secret" not in str(source.facts)
    source.task.stop()


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (Response(500), RetriableError),
        (Response(0), RetriableError),
        (Response(404), ConnectError),
        (Response(200, b"no"), DataError),
        (as_json({"cursor": 1}), DataError),
    ],
)
def test_errors_of_the_source(serve: Serve, response: Response, error: type[Exception]) -> None:
    source = source_of(serve(lambda request: response), records_path="items")
    with pytest.raises(error):
        source.poll()
    source.task.stop()


def test_offsets_have_no_credentials_of_the_url(serve: Serve) -> None:
    url = serve(lambda _: as_json({"cursor": 1, "items": [{}]})).replace("http://", "http://ann:hunter2@")
    source = source_of(f"{url}/x?access_token=hunter2&table=a", records_path="items")
    found = str(source.poll()[0].source_partition)
    source.task.stop()
    assert "hunter2" not in found
    assert "ann" not in found
    assert "table=a" in found
    assert without_credentials("http://h/x?a=1&b=%20") == "http://h/x?a=1&b=%20"


def test_offset_of_another_mode_and_values_without_an_order_are_named(serve: Serve) -> None:
    items = [{"id": 1, "at": 1}, {"id": 2, "at": "x"}]
    url = serve(lambda _: as_json({"cursor": 1, "items": items}))
    source = source_of(url, records_path="items")
    source.commit(source.poll())
    source.config = {**source.config, "mode": "page"}
    with pytest.raises(ConnectError, match="is of another mode than page"):
        source.start()
    source = source_of(url, records_path="items", mode="since", since_field="at", id_field="id")
    with pytest.raises(DataError, match="Values of the field at cannot be compared"):
        source.poll()
    source.task.stop()


def test_acknowledgement_follows_the_commit(serve: Serve) -> None:
    """An API that forgets records when they are acknowledged: a kill before it loses nothing."""
    queue, acknowledged = [1, 2, 3], list[Any]()

    def answer(request: Request) -> Response:
        if request.method == "POST":
            acknowledged.append(json.loads(request.body)["after"])
            queue[:] = [each for each in queue if each > acknowledged[-1]]
            return Response(204, b"")
        return as_json({"items": queue[:2], "cursor": queue[:2][-1] if queue else None})

    url = serve(answer)
    source = source_of(url, records_path="items", ack_url=f"{url}/ack")
    assert [each.value for each in source.poll(2)] == [1, 2], "no request before the acknowledgement"
    assert acknowledged == []
    source.start()
    records = source.poll()
    acknowledge, source.task.commit = source.task.commit, lambda offsets: None  # type: ignore[method-assign]
    source.commit(records)  # killed between the commit and the acknowledgement
    assert acknowledge is not None
    source.start()
    assert acknowledged == [2], "the committed offset is acknowledged before the first request"
    assert values_of(source, 2) == [3]
    source.task.stop()
    assert HttpSourceConnector.exactly_once({"mode": "none"}) is ExactlyOnce.UNSUPPORTED


def sink_of(url: str, count: int = 5, **more: str) -> Sink:
    settings = {name.replace("_", "."): value for name, value in more.items()}
    rows = [sink_record("t", 0, each, {"id": each}) for each in range(count)]
    return Sink(HttpSinkTask, {"url": url, **settings}, {TP: rows})


def test_requests_have_keys_and_are_sent_again_only_if_they_failed(serve: Serve) -> None:
    got: list[tuple[str, Any]] = []
    statuses = iter([200, 503, 0, 200])

    def answer(request: Request) -> Response:
        got.append((request.headers["idempotency-key"], json.loads(request.body)))
        assert request.headers["authorization"] == "Bearer x"
        return Response(next(statuses, 200))

    sink = sink_of(serve(answer), count=3, **{"header.Authorization": "Bearer x"})
    for _ in range(2):
        with pytest.raises(RetriableError):
            sink.put()
    sink.run()
    sink.task.stop()
    assert [key for key, _ in got] == ["t-0-0", "t-0-1", "t-0-1", "t-0-1", "t-0-2"]
    assert got[-1][1] == {"id": 2}
    assert sink.committed == {TP: 3}


def test_refused_record_of_a_batch_is_rejected_alone(serve: Serve) -> None:
    got: list[tuple[str, Any]] = []

    def answer(request: Request) -> Response:
        values = json.loads(request.body)
        if {"id": 1} in values:
            return Response(422, b"id 1 is odd")
        got.append((request.headers["idempotency-key"], values))
        return Response(200)

    sink = sink_of(serve(answer), batch_size="3")
    sink.run()
    assert got == [("t-0-0", [{"id": 0}]), ("t-0-2", [{"id": 2}]), ("t-0-3-4", [{"id": 3}, {"id": 4}])]
    assert "t-0 offset 1 was refused" in str(sink.rejected[0][1])
    assert "id 1 is odd" in str(sink.rejected[0][1])
    sink.has_dead_letters = False
    sink.start()
    sink.positions = {TP: 0}
    with pytest.raises(ConnectError):
        sink.put()
    sink.task.stop()


@pytest.mark.parametrize("status", [302, 401, 405, 501, 507])
def test_status_that_is_not_about_the_record_stops_the_task_and_skips_nothing(serve: Serve, status: int) -> None:
    sink = sink_of(serve(lambda _: Response(status, b"no", {"location": "/login"})), count=1)
    with pytest.raises(ConnectError, match=f"status {status}") as caught:
        sink.put()
    assert not isinstance(caught.value, RetriableError)
    assert (sink.rejected, sink.committed) == ([], {})
    sink.task.stop()


def test_retry_after_dates_and_places() -> None:
    import httpx

    def seconds(text: str) -> float | None:
        return retry_after_s(httpx.Response(429, headers={"retry-after": text}))

    assert seconds("7") == 7
    assert seconds("99999") == 3600
    assert seconds("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert seconds("soon") is None
    assert place("https://user:secret@host:1/a?token=x") == "https://host:1/a"

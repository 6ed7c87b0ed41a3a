"""The search sink against a strict stand-in for the bulk API: syntax, external versions, mappings, partial failures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ottla.connect.api import TopicPartition
from ottla.connect.connectors.search.sink import SearchSinkConnector, SearchSinkTask
from ottla.connect.errors import ConnectError, RetriableError
from tests.connect.http_server import Request, Response, http_server
from tests.connect.tasks import Sink, sink_record

TP = TopicPartition("Things", 0)


class Index:
    """Documents with external versions. The field `n` is a long. It refuses everything that the real API refuses."""

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {}
        self.versions: dict[str, int] = {}
        self.busy: list[int] = []
        """Statuses of the next documents."""
        self.statuses: list[int] = []
        """Statuses of the next requests."""
        self.requests = 0

    def answer(self, request: Request) -> Response:
        self.requests += 1
        if self.statuses:
            return Response(self.statuses.pop(0))
        lines = request.body.split(b"\n")
        if (request.method, request.path) != ("POST", "/_bulk") or lines.pop() != b"":
            return Response(400)
        if request.headers["content-type"] != "application/x-ndjson" or len(request.body) > 2000:
            return Response(413)
        items = []
        while lines:
            ((kind, action),) = json.loads(lines.pop(0)).items()
            document = json.loads(lines.pop(0)) if kind == "index" else None
            items.append({kind: self._apply(kind, action, document)})
        return Response(200, json.dumps({"errors": True, "items": items}).encode())

    def _apply(self, kind: str, action: dict[str, Any], document: Any) -> dict[str, Any]:
        assert set(action) == {"_index", "_id", "version", "version_type"}
        assert action["version_type"] == "external"
        assert action["_index"] == action["_index"].lower()
        identity, version = action["_id"], action["version"]
        if self.busy:
            status = self.busy.pop(0)
            if status != 200:
                return {"status": status, "error": {"type": "es_rejected_execution_exception", "reason": "full"}}
        if version <= self.versions.get(identity, -1):
            return {"status": 409, "error": {"type": "version_conflict_engine_exception", "reason": "newer"}}
        if document is not None and not isinstance(document.get("n", 0), int):
            cause = {"type": "number_format_exception", "reason": f'For input string: "{document["n"]}"'}
            reason = f"failed to parse field [n] of type [long] in document with id '{identity}'"
            return {"status": 400, "error": {"type": "mapper_parsing_exception", "reason": reason, "caused_by": cause}}
        self.versions[identity] = version
        if kind == "delete":
            return {"status": 200 if self.documents.pop(identity, None) is not None else 404}
        self.documents[identity] = document
        return {"status": 201}


@contextmanager
def sink_on(index: Index, rows: list[Any], **more: str) -> Iterator[Sink]:
    settings = {name.replace("_", "."): value for name, value in more.items()}
    with http_server(index.answer) as url:
        sink = Sink(SearchSinkTask, {"connection.url": url, **settings}, {TP: rows})
        try:
            yield sink
        finally:
            sink.task.stop()


def row(offset: int, key: str | None, value: Any) -> Any:
    return sink_record("Things", 0, offset, value, key=None if key is None else key.encode())


def test_repeated_records_change_nothing_and_tombstones_delete() -> None:
    index = Index()
    rows = [row(0, "a", {"n": 0}), row(1, "b", {"n": 1}), row(2, "a", {"n": 2}), row(3, "b", None), row(4, "c", None)]
    with sink_on(index, rows) as sink:
        sink.run(2)
        assert index.documents == {"a": {"n": 2}}
        sink.committed.clear()
        sink.start()
        sink.put(3)  # the older state of "a", once more
        assert index.documents == {"a": {"n": 2}}
        sink.run()
        assert sink.committed == {TP: 5}


def test_documents_by_offset_and_large_batches_are_divided() -> None:
    index = Index()
    with sink_on(index, [row(each, None, {"n": each}) for each in range(30)], key_ignore="true") as sink:
        sink.run(30)
    assert index.documents == {f"Things+0+{each}": {"n": each} for each in range(30)}
    assert index.requests > 1


def test_busy_server_gets_all_records_again() -> None:
    index = Index()
    rows = [row(0, "k0", {"n": 0}), row(1, "bad", {"n": "x"}), row(2, "k1", {"n": 1}), row(3, "k2", {"n": 2})]
    with sink_on(index, rows) as sink:
        index.statuses = [503]
        with pytest.raises(RetriableError, match="status 503"):
            sink.put()
        index.busy = [200, 200, 429]
        with pytest.raises(RetriableError, match="status 429: es_rejected_execution_exception: full"):
            sink.put()
        sink.run()
        assert set(index.documents) == {"k0", "k1", "k2"}
        assert len(sink.rejected) == 1


@pytest.mark.parametrize("status", [403, 507])
def test_document_that_a_full_or_closed_index_refuses_is_not_skipped(status: int) -> None:
    index = Index()
    with sink_on(index, [row(0, "a", {"n": 0}), row(1, "b", {"n": 1})]) as sink:
        index.busy = [200, status]
        with pytest.raises(ConnectError, match=f"refuses to write: status {status}"):
            sink.put()
        assert not sink.rejected
        sink.start()
        sink.run()
        assert set(index.documents) == {"a", "b"}


@pytest.mark.parametrize("items", [[1], [{"index": {}}], [{"index": {"status": "x"}}], "text", [], None])
def test_answer_that_is_not_of_a_bulk_request_is_tried_again(items: object) -> None:
    with http_server(lambda _: Response(200, json.dumps({"items": items}).encode())) as url:
        sink = Sink(SearchSinkTask, {"connection.url": url}, {TP: [row(0, "a", {"n": 0})]})
        with pytest.raises(RetriableError):
            sink.put()
        sink.task.stop()


def test_mapping_error_names_record_and_field() -> None:
    index = Index()
    with sink_on(index, [row(0, "a", {"n": "x"}), row(1, "b", {"n": 1}), row(2, None, {}), row(3, "c", [1])]) as sink:
        sink.run()
        found = {each.offset: str(error) for each, error in sink.rejected}
        assert found[0].startswith("The record Things-0 offset 0 was refused: field n: mapper_parsing_exception")
        assert 'number_format_exception: For input string: "x"' in found[0]
        assert "it has no key; set key.ignore=true" in found[2]
        assert "its value is not a JSON object" in found[3]
        assert set(index.documents) == {"b"}
        sink.has_dead_letters = False
        sink.start()
        sink.positions = {TP: 0}
        with pytest.raises(ConnectError):
            sink.put(1)
        index.statuses = [401]
        with pytest.raises(ConnectError, match="status 401"):
            sink.task.put([row(9, "z", {"n": 9})])
    assert SearchSinkConnector.problems({"connection.url": "host"})

"""New records of a topic as server-sent events, until the browser closes the connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ottla.clients import AsyncConsumer, Record
from ottla.clients.errors import ClientError
from ottla.console.calls import COOKIE, Call, Console, Problem
from ottla.console.pages.messages import registry_of
from ottla.console.pages.topics import name_of
from ottla.console.records import Decoder
from ottla.console.sessions import Session

if TYPE_CHECKING:
    from starlette.requests import Request

_MOST: Final = 50
_MOST_S: Final = 1800.0
_MOST_PER_POLL: Final = 100
_KEEPALIVE_S: Final = 10.0


def routes(console: Console, stop: asyncio.Event) -> list[Route]:
    """Return the route of the events."""
    slots = asyncio.Semaphore(_MOST)

    async def tail(request: Request) -> Response:
        session = await run_in_threadpool(console.sessions.find, request.cookies.get(COOKIE, ""))
        if session is None:
            return JSONResponse({"error": "Sign in first"}, 401)
        if slots.locked():
            return JSONResponse({"error": f"{_MOST} pages follow topics already: close one"}, 503)
        call = Call(console, session, request.url.path, request.path_params, dict(request.query_params), {})
        try:
            name = name_of(call)
            if call.query.get("partition"):
                call.number("partition", 0, 2**31 - 1)
        except Problem as problem:
            return JSONResponse({"error": problem.message}, problem.status)
        events = _events(call, session, name, stop)
        return StreamingResponse(_limited(slots, events), media_type="text/event-stream")

    return [Route("/topics/{topic}/tail", tail, methods=["GET"])]


async def _limited(slots: asyncio.Semaphore, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async with slots:
        async for event in events:
            yield event


async def _events(call: Call, session: Session, name: str, stop: asyncio.Event) -> AsyncIterator[bytes]:
    mask = call.settings.masks.of(session.user, name)
    loop = asyncio.get_running_loop()
    ends_at, said_at = loop.time() + _MOST_S, loop.time()
    wanted = call.query.get("text", "").casefold()
    try:
        with registry_of(call) as registry:
            decoder = Decoder(mask, registry)
            async with AsyncConsumer(session.consumer_settings()) as consumer:
                partitions = await consumer.partitions_of(name)
                chosen = [int(call.query["partition"])] if call.query.get("partition") else partitions
                consumer.assign([(name, partition) for partition in chosen if partition in partitions])
                consumer.seek_to_end()
                yield b": begin\n\n"
                while not stop.is_set() and loop.time() < ends_at:
                    records = await consumer.poll(0.5, max_records=_MOST_PER_POLL)
                    rows = await asyncio.to_thread(_rows, decoder, records, wanted) if records else []
                    is_late = loop.time() - said_at > _KEEPALIVE_S
                    event = b"".join(map(_event, rows)) or (b": idle\n\n" if is_late else b"")
                    yield event
                    said_at = loop.time() if event else said_at
    except ClientError as error:
        text = json.dumps({"error": " ".join(str(error).split())})
        yield f"event: problem\ndata: {text}\n\n".encode()


def _event(row: dict[str, object]) -> bytes:
    return b"data: " + json.dumps(row).encode() + b"\n\n"


def _rows(decoder: Decoder, records: list[Record[bytes, bytes]], wanted: str) -> list[dict[str, object]]:
    rows = []
    for record in records:
        if wanted:
            texts = [decoder.part(record, part)[0] or "" for part in ("key", "value")]
            if not any(wanted in text.casefold() for text in texts):
                continue
        rows.append(decoder.row(record))
    return rows

"""Records of a topic: a search with limits, one whole record, and a form that writes a record."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from ottla.console.calls import Call, Done, Problem, slow_page, whole
from ottla.console.masking import MASKED
from ottla.console.pages.topics import CRUMB, name_of, tabs
from ottla.console.records import Decoder, Search, base64_text, one, search
from ottla.console.view import Field, Form, Page, url
from ottla.registry_client import RegistryClient
from ottla.tools.registry_values import FromJsonText

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST: Final = 500
_LONGEST: Final = 1000
_DELIVERY_S: Final = 25.0
_MANY: Final = 100
"""Reading this many partitions may take seconds."""
# Many pages may search at the same time.
_BOUNDED: Final = {"fetch.max.bytes": 32 * 1024 * 1024, "max.partition.fetch.bytes": 16 * 1024 * 1024}


@contextmanager
def registry_of(call: Call) -> Iterator[RegistryClient | None]:
    """Return a client of the registry with the user's credentials; None without a registry."""
    given = call.settings.registry
    if given is None:
        yield None
        return
    auth = call.session.basic_auth()
    settings = {**given, "default.api.timeout.ms": 5_000}
    if auth is not None:
        settings |= {"basic.auth.credentials.source": "USER_INFO", "basic.auth.user.info": ":".join(auth)}
    with RegistryClient(settings) as client:
        yield client


def listing(call: Call) -> Page:
    """Search the records of a topic."""
    name = name_of(call)
    partitions = tuple(part.partition for part in call.admin.describe_topic(name).partitions)
    wanted = _search(call, name, partitions)
    mask = call.settings.masks.of(call.session.user, name)
    with ExitStack() as opened:
        if wanted.filters or len(wanted.partitions) > _MANY:
            opened.enter_context(slow_page())
        registry = opened.enter_context(registry_of(call))
        consumer = opened.enter_context(call.session.consumer(**_BOUNDED))
        found = search(consumer, call.admin, wanted, Decoder(mask, registry))
    given = {key: call.query.get(key, "") for key in ("partition", "key", "text", "limit")}
    is_forward = wanted.starts is not None or wanted.timestamp_ms is not None
    following = starts = None
    if found.remaining and is_forward:
        starts = ",".join(f"{partition}:{offset}" for partition, offset in sorted(found.next.items()))
        following = url("topics", name, "messages", **given, at=starts)
    command = ["consume" if is_forward else "tail", name]
    command += ["--partition", call.query["partition"]] if call.query.get("partition") else []
    command += ["--grep", wanted.text] if wanted.text else []
    return Page(
        name,
        {
            "topic": name,
            "records": found.records,
            "scanned": found.scanned,
            "remaining": found.remaining,
            "took_s": round(found.took_s, 3),
            "next": following,
            "at": starts,
            "notice": found.notice,
        },
        command=call.command(*command),
        crumbs=[CRUMB],
        tabs=tabs(call, name, "messages"),
        section="topics",
        template="messages.html",
        more={
            "topic": name,
            "found": found,
            "following": following,
            "partitions": partitions,
            "tail": url("topics", name, "tail", partition=given["partition"], key=given["key"], text=given["text"]),
            "is_forward": is_forward,
        },
    )


def _search(call: Call, name: str, partitions: tuple[int, ...]) -> Search:
    query = call.query
    if max(len(query.get(key, "")) for key in ("key", "text", "at")) > _LONGEST:
        raise Problem(400, f"The search has more than {_LONGEST} characters")
    chosen = partitions
    if query.get("partition"):
        chosen = (whole("partition", query["partition"]),)
        if chosen[0] not in partitions:
            raise Problem(404, f"{name} has no partition {chosen[0]}")
    starts: dict[int, int] | None = None
    if query.get("at"):
        starts = _positions(query["at"], chosen)
        chosen = tuple(partition for partition in chosen if partition in starts)
    elif query.get("offset"):
        starts = dict.fromkeys(chosen, whole("offset", query["offset"]))
    limit = min(max(1, call.number("limit", 50, _MOST)), _MOST)
    moment = timestamp_of(query["time"]) if query.get("time") else None
    return Search(name, chosen, limit, starts, moment, query.get("key", ""), query.get("text", ""))


def _positions(given: str, partitions: tuple[int, ...]) -> dict[int, int]:
    found = {}
    for word in given.split(","):
        partition, _, offset = word.partition(":")
        found[whole("at", partition)] = whole("at", offset)
    return {partition: offset for partition, offset in found.items() if partition in partitions}


def timestamp_of(given: str) -> int:
    """Return ms since the epoch of a number, or of a time in UTC such as 2026-01-31T12:00. Raises Problem."""
    stripped = given.strip()
    if stripped.isdecimal():
        return whole("time", stripped)
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        raise Problem(400, f"time is {given[:40]!r}", "Write 2026-01-31T12:00 or milliseconds.") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0, round(moment.timestamp() * 1000))


def record(call: Call) -> Page | Response:
    """Show one whole record, or its key or value alone."""
    name = name_of(call)
    partition = whole("partition", call.params["partition"], 2**31 - 1)
    offset = whole("offset", call.params["offset"])
    mask = call.settings.masks.of(call.session.user, name)
    with registry_of(call) as registry, call.session.consumer() as consumer:
        found = one(consumer, name, partition, offset)
        if found is None:
            raise Problem(404, f"{name}/{partition} has no record at offset {offset}")
        decoder = Decoder(mask, registry)
        row = decoder.row(found, None)
    raw = call.query.get("raw")
    if raw in ("key", "value"):
        masked = (mask.key if raw == "key" else mask.value) != ()
        content = (row[raw] or "").encode() if masked else getattr(found, raw) or b""
        headers = {"content-disposition": f'attachment; filename="{name}-{partition}-{offset}.{raw}"'}
        return Response(content, 200, headers, "application/octet-stream")
    for part in ("key", "value"):
        row[f"{part}_base64"] = None if row[part] == MASKED or mask else base64_text(getattr(found, part))
    words = ["consume", name, "--partition", str(partition), "--offset", str(offset), "-n", "1"]
    return Page(
        f"{name}/{partition} at {offset}",
        row,
        command=call.command(*words),
        crumbs=[CRUMB, (name, url("topics", name)), ("Messages", url("topics", name, "messages"))],
        section="topics",
        template="record.html",
        more={"record": row, "pretty": {part: _pretty(row, part) for part in ("key", "value")}, "topic": name},
    )


def _pretty(row: dict[str, Any], part: str) -> str:
    text = row[part]
    if text is None:
        return ""
    if row[f"{part}_kind"] in ("json", "schema"):
        try:
            return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            return str(text)
    return str(text)


def produce(call: Call) -> Page | Done:
    """Write one record."""
    name = name_of(call)
    if call.form:
        return _produce(call, name)
    call.check_may_change()
    partitions = call.admin.describe_topic(name).partitions
    choices = [("", "by key")] + [(str(each.partition), str(each.partition)) for each in partitions]
    fields = [
        Field("key", "Key", hint="empty: no key"),
        Field("value", "Value", type="area"),
        Field("tombstone", "No value (a tombstone)", type="checkbox"),
        Field("headers", "Headers", type="area", hint="one NAME: VALUE in each line"),
        Field("partition", "Partition", type="select", options=choices),
    ]
    if call.settings.registry is not None:
        fields.append(Field("schema", "Encode the value by the latest schema of its subject", type="checkbox"))
    return Page(
        name,
        {"topic": name, "fields": [field.name for field in fields]},
        [Form(url("topics", name, "produce"), "Write record", fields)],
        command=call.command("produce", name),
        crumbs=[CRUMB],
        tabs=tabs(call, name, "produce"),
        section="topics",
    )


def _produce(call: Call, name: str) -> Done:
    form = call.form
    value: bytes | None = None if form.get("tombstone") else form.get("value", "").encode()
    headers = []
    for line in filter(None, map(str.strip, form.get("headers", "").splitlines())):
        header, separator, content = line.partition(":")
        if not separator:
            raise Problem(400, f"{line[:80]!r} is not a header", "Write NAME: VALUE.")
        headers.append((header.strip(), content.strip().encode()))
    partition = whole("partition", form["partition"], 2**31 - 1) if form.get("partition") else None
    if form.get("schema") and value is not None:
        with registry_of(call) as registry:
            if registry is None:
                raise Problem(400, "This console has no schema registry")
            try:
                value = FromJsonText(registry, "value")(value, topic=name, headers=headers)
            except ValueError as error:
                raise Problem(400, f"The value does not fit the schema: {error}") from error
    with call.session.producer() as producer:
        key = form.get("key", "").encode() or None
        sent = producer.send(name, value, key, partition=partition, headers=headers)
        written = sent.result(_DELIVERY_S)
    data = {"topic": name, "partition": written.partition, "offset": written.offset}
    return Done(url("topics", name, "messages", written.partition, written.offset), "produced", data)

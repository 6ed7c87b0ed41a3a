"""Delete the first records of a partition: a form, a question that shows what is deleted, the deletion."""

from __future__ import annotations

from ottla.common import units
from ottla.common.ids import TopicPartition
from ottla.console.calls import Call, Done, whole
from ottla.console.pages.topics import CRUMB, name_of
from ottla.console.view import Column, Field, Form, Link, Page, Table, number, url
from ottla.tools.admin.record_deletion import RecordDeletion, delete_records, plan_deletion


def delete(call: Call) -> Page | Done:
    """Ask for the partition and the offset; then show the deletion; then delete."""
    call.check_may_change()
    name = name_of(call)
    if not call.form:
        return _form(call, name)
    partition = TopicPartition(name, whole("partition", call.form.get("partition", ""), 2**31 - 1))
    given = call.form.get("before", "").strip()
    found = plan_deletion(call.admin, partition, whole("before", given) if given else None)
    if not call.form.get("confirm"):
        return _question(call, found)
    delete_records(call.admin, found)
    call.session.cached.forget()
    return Done(url("topics", name), "records-deleted", found.data(is_done=True))


def _form(call: Call, name: str) -> Page:
    count = len(call.admin.describe_topic(name).partitions)
    target = url("topics", name, "delete-records")
    fields = [
        Field("partition", "Partition", call.query.get("partition", ""), "number", required=True),
        Field("before", "Before offset", hint="empty: all records of the partition"),
    ]
    return Page(
        f"Delete records of {name}",
        {"topic": name, "partition_count": count},
        [Form(target, "Preview", fields, note="The records before the offset are deleted on all replicas.")],
        command=call.command("topic", "delete-records", name, "-p", "0", "--before", "OFFSET"),
        crumbs=[CRUMB, (name, url("topics", name))],
        section="topics",
    )


def _question(call: Call, found: RecordDeletion) -> Page:
    name, index = found.partition
    target = url("topics", name, "delete-records")
    columns = ["Partition", "First offset", "First offset after it", "End", "Deleted offsets"]
    row = [number(value) for value in (index, found.first, max(found.first, found.before), found.end, found.offsets)]
    # The end of the log moves: what is confirmed is the offset that was shown.
    given = {"partition": index, "before": found.before, "confirm": 1}
    fields = [Field(key, "", str(value), "hidden") for key, value in given.items()]
    note = "This cannot be undone. Of a compacted topic, fewer records than offsets are deleted."
    form = Form(target, f"Delete {units.plural(found.offsets, 'offset')}", fields, note=note, tone="danger")
    where = ("-p", str(index), "--before", str(found.before))
    return Page(
        f"Delete records of {found.partition}?",
        {**found.data(is_done=False), "confirmed": False},
        [Table([Column(column, right=True) for column in columns], [row]), *([form] if found.offsets else [])],
        command=call.command("topic", "delete-records", name, *where),
        crumbs=[CRUMB, (name, url("topics", name))],
        actions=[Link("Back", target)],
        lead="Nothing was deleted yet." if found.offsets else "The partition has no record before this offset.",
        tone="warning",
        section="topics",
    )

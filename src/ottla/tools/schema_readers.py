"""Consumer groups that would not be able to read values of a new schema, by the reports of their reader schemas.

A group is checked if it has committed offsets with a report (`ottla.clients.reader_reports`) for the subject. Groups
that read the topic without a report are named, since nothing is known about them. Share groups never have a report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.clients.admin import Admin, GroupState, GroupType
from ottla.clients.reader_reports import TOPIC, read_reports
from ottla.schemas.model import InvalidSchema, Schema
from ottla.schemas.parsing import parse

if TYPE_CHECKING:
    from ottla.registry_client import RegistryClient

_ENDED = (GroupState.DEAD,)


class GroupReader(NamedTuple):
    """A reader's schema that a group reported for a subject; `schema` is None if the report was too large for it."""

    group: str
    state: str
    topic: str
    schema: Schema | None


class Readers(NamedTuple):
    """The readers of a subject, and the groups that read its topic without a report."""

    readers: list[GroupReader]
    without_report: list[str]


def group_readers(admin: Admin, subject: str) -> Readers:
    """Return the reported readers of a subject. Blocks. Raises ClientError."""
    listed = {each.group_id: each for each in admin.list_groups() if each.state not in _ENDED}
    consumers = [name for name, each in listed.items() if each.protocol_type in ("consumer", "")]
    readers: dict[tuple[str, str, Schema | None], GroupReader] = {}
    unreported: set[str] = set()
    topic_of_subject = subject.rpartition("-")[0] if subject.endswith(("-key", "-value")) else None
    for group, offsets in admin.list_offsets_of_groups(consumers).items() if consumers else ():
        state = str(listed[group].state.value)
        for tp, offset in offsets.items():
            reports = read_reports(offset.metadata)
            for each in reports:
                if each.subject.replace(TOPIC, tp.topic) == subject:
                    key = (group, tp.topic, each.schema)  # reports have no mappings, so their schemas are hashable
                    readers[key] = GroupReader(group, state, tp.topic, each.schema)
            if not reports and tp.topic == topic_of_subject:
                unreported.add(group)
    for group, listing in listed.items() if topic_of_subject else ():
        # Share groups commit no offsets with metadata, so nothing is known about their readers.
        if listing.type is GroupType.SHARE and any(
            tp.topic == topic_of_subject for tp in admin.list_share_group_offsets(group)
        ):
            unreported.add(group)
    reported = {each.group for each in readers.values()}
    found = sorted(readers.values(), key=lambda each: (each.group, each.topic))
    return Readers(found, sorted(unreported - reported))


def broken_readers(
    readers: list[GroupReader], candidate: Schema, client: RegistryClient
) -> list[tuple[GroupReader, list[str]]]:
    """Return the readers that cannot read values of `candidate`, with the reasons. Raises InvalidSchema."""
    writer = parse(candidate, client.get_referenced_schemas(candidate))
    broken = []
    for reader in readers:
        if reader.schema is None:
            broken.append((reader, ["its reader schema was too large for a report, so it cannot be checked"]))
            continue
        if reader.schema.type is not candidate.type:
            broken.append((reader, [f"it reads {reader.schema.type}, and the schema is {candidate.type}"]))
            continue
        try:
            parsed = parse(reader.schema, client.get_referenced_schemas(reader.schema), is_new=False)
        except InvalidSchema as error:
            broken.append((reader, [f"its reader schema is invalid: {error}"]))
            continue
        reasons = [f"{each.message} ({each.path or '/'})" for each in parsed.incompatibilities(writer)]
        if reasons:
            broken.append((reader, reasons))
    return broken

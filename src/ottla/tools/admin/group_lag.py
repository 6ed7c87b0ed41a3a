"""The lag of a group of any type: how far its offsets are behind the ends of its partitions."""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.clients import admin as api
from ottla.tools.admin.group_offsets import read_offsets
from ottla.tools.admin.outcomes import outcomes


class GroupLag(NamedTuple):
    """The state of a group, with a row for each partition."""

    group: api.GroupDescription
    rows: list[dict[str, Any]]

    def summary(self) -> dict[str, Any]:
        """Return the totals of the group as one row."""
        return {
            "group": self.group.group_id,
            "state": self.group.state.value,
            "type": self.group.type.value,
            "assignor": self.group.assignor or None,
            "member_count": len(self.group.members),
            "partition_count": len(self.rows),
            "lag": sum(row["lag"] or 0 for row in self.rows),
        }


def read_lag(admin: api.Admin, name: str) -> GroupLag:
    """Read the state of a group: its members, committed offsets and end offsets."""
    group = admin.describe_group(name)
    is_share = group.type is api.GroupType.SHARE
    shares = admin.list_share_group_offsets(name) if is_share else {}
    starts = {partition: at.start_offset for partition, at in shares.items()}
    committed = starts if is_share else read_offsets(admin, name, is_share=False)
    # A partition of a share group has several readers.
    members = () if is_share else group.members
    readers = {partition: member for member in members for partition in member.assignment}
    partitions = sorted({*committed, *readers})
    # Topics of committed offsets may be deleted.
    ends, _ = outcomes(admin.list_offsets, dict.fromkeys(partitions, api.OffsetSpec.LATEST)) if partitions else ({}, {})
    rows: list[dict[str, Any]] = []
    for partition in partitions:
        reader, end, at = readers.get(partition), ends.get(partition), committed.get(partition)
        lag = max(0, end.offset - at) if end and at is not None else None
        if is_share and shares[partition].lag is not None:
            lag = shares[partition].lag  # without the records after the start that were accepted
        rows.append(
            {
                "group": name,
                **partition._asdict(),
                "committed": at,
                "end": end.offset if end else None,
                "lag": lag,
                "member": reader.member_id if reader else None,
                "client": reader.client_id if reader else None,
                "host": reader.host.removeprefix("/") if reader else None,
            }
        )
    return GroupLag(group, rows)

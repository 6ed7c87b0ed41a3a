"""`explain_group`: observes a group for some seconds and explains each of its partitions."""

from __future__ import annotations

from typing import Final

from ottla.clients import admin as api
from ottla.clients.errors import GroupAuthorizationFailed
from ottla.tools.why.group_causes import explain
from ottla.tools.why.model import Finding, GroupReport, RecordReader, Watch
from ottla.tools.why.samples import observe

UNKNOWN: Final = "Unknown"


async def explain_group(
    admin: api.AsyncAdmin, group: str, watch: Watch, records: RecordReader | None = None
) -> GroupReport:
    """Observe a group of any type for `watch.seconds` and explain it. Raises GroupNotFound.

    Without `records`, the report has neither records nor lags in seconds. The group and its members are not changed.
    """
    try:
        return explain(await observe(admin, group, watch, records))
    except GroupAuthorizationFailed:
        cause = f"You may not describe the group {group}."
        step = f"ottla security acl add USER group:{group} --operation describe, and the same for its topics"
        finding = Finding("not_authorized", group, cause, step, "critical")
        return GroupReport(group, UNKNOWN, UNKNOWN, 0, 0.0, (finding,))

"""Passes the requests of group members to the group coordinator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ottla.common.completion import Completion
from ottla.common.request import Request

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.coordination.group_runtime import GroupRuntime

R = TypeVar("R")


def submit(
    groups: GroupRuntime,
    context: RequestContext,
    group_id: str,
    request: Request[R],
    may_describe: Callable[[str], bool] | None = None,
) -> Completion[R]:
    """Pass the request to the group's shard, with the client's id and address, which descriptions of groups show.

    `may_describe` says which topics a regular expression of the client may match.
    """
    return groups.submit(
        group_id,
        request,
        api_version=context.api_version,
        client_id=context.client_id or "",
        # With a slash, as Java formats an address: tools show the text unchanged.
        client_host=f"/{context.client_host}",
        may_describe=may_describe,
    )

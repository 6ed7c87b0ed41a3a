"""Responses without a result: an error, with the responder's view of epoch and leader."""

from __future__ import annotations

from typing import NamedTuple

from ottla.common.errors import ErrorCode
from ottla.raft import messages as m
from ottla.raft.values import Endpoints


class LeaderView(NamedTuple):
    """A replica's view of the quorum's leader."""

    epoch: int
    leader_id: int
    endpoints: Endpoints


_WITH_LEADER: dict[type, type[m.LeaderResponse]] = {
    m.VoteRequest: m.VoteResponse,
    m.BeginQuorumEpochRequest: m.QuorumEpochResponse,
    m.EndQuorumEpochRequest: m.QuorumEpochResponse,
    m.FetchRequest: m.FetchResponse,
    m.FetchSnapshotRequest: m.FetchSnapshotResponse,
    m.UpdateVoterRequest: m.UpdateVoterResponse,
}


def refusal(request: m.Request, error: ErrorCode, view: LeaderView, message: str | None = None) -> m.Response:
    """The response to `request` with only an error, or with none if `error` is NONE."""
    with_leader = _WITH_LEADER.get(type(request))
    if with_leader is not None:
        return with_leader(error, *view)
    if isinstance(request, m.ApiVersionsRequest):
        return m.ApiVersionsResponse(error)
    return m.VoterChangeResponse(error, message)

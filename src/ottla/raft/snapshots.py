"""The leader's side of FetchSnapshot: parts of a snapshot by position. KIP-630."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.raft.leader import Leader
from ottla.raft.messages import FetchSnapshotRequest, FetchSnapshotResponse, Response
from ottla.raft.responses import refusal
from ottla.raft.state import QuorumState


def on_fetch_snapshot_request(q: QuorumState, request: FetchSnapshotRequest) -> Response:
    """Name the part of the snapshot that the shell adds. It counts as a fetch for the check of the quorum."""
    leader = q.state
    error = q.leader_error(request.epoch)
    if error is not ErrorCode.NONE or not isinstance(leader, Leader):
        return refusal(request, error, q.view)
    size = q.log.snapshot_size(request.snapshot)
    if size is None:
        return refusal(request, ErrorCode.SNAPSHOT_NOT_FOUND, q.view)
    if not 0 <= request.position < size:
        return refusal(request, ErrorCode.POSITION_OUT_OF_RANGE, q.view)
    if request.replica.node_id != q.config.node_id:
        leader.note_fetch(request.replica, q.now_ms)
    length = min(max(0, request.max_bytes), size - request.position)
    return FetchSnapshotResponse(ErrorCode.NONE, *q.view, request.snapshot, size, request.position, length)

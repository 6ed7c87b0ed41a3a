"""Changes of the voters, by the leader: add, remove, update, and the upgrade to kraft.version 1. KIP-853.

One change at a time: a change begins only when the previous voter set is committed, and a record of the leader's own
epoch with it. Consecutive voter sets differ by one voter, so that their majorities overlap.

    request -> (add, update: ApiVersions to the voter) -> VotersRecord appended, takes effect -> committed -> response

With kraft.version 0 the configuration names the voters. UpdateRaftVoter then only tells the leader directories and
versions, which it writes to the log when kraft.version becomes 1.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.raft.connections import FOREVER
from ottla.raft.control import ControlRecord, KRaftVersion
from ottla.raft.events import AppendControl, Token, UpgradeRequested
from ottla.raft.leader import Leader
from ottla.raft.messages import (
    AddVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VoterChangeResponse,
)
from ottla.raft.state import QuorumState
from ottla.raft.values import Endpoints, Node, ReplicaKey, address_of
from ottla.raft.voter_change import PendingChange, PendingUpgrade
from ottla.raft.voters import DYNAMIC_VOTERS, VersionRange, Voter

TIMED_OUT, NONE = ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE
Problem = tuple[ErrorCode, str]
ChangeRequest = AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest


# -- requests ------------------------------------------------------------------------------------------------------


def on_request(q: QuorumState, token: Token, request: ChangeRequest) -> None:
    """Begin a change, or answer why it cannot begin."""
    leader = q.state
    epoch = request.epoch if isinstance(request, UpdateVoterRequest) else q.epoch
    error = q.leader_error(epoch)
    if error is not NONE or not isinstance(leader, Leader):
        q.refuse(token, request, error)
        return
    problem = _invalid(q, request) or _blocked(q, leader, request) or _conflict(q, request)
    if problem is not None:
        q.refuse(token, request, *problem)
        return
    change = PendingChange(token, request, q.now_ms + q.config.request_timeout_ms)
    if isinstance(request, RemoveVoterRequest):
        voters = q.voters.last.remove(request.voter)
        assert voters is not None, "checked in _conflict"
        leader.change = change
        q.effects.append(AppendControl(q.epoch, (voters,)))
        return
    change.asked = _ask_versions(q, request.voter, request.endpoints)
    if change.asked is None:
        q.refuse(token, request, TIMED_OUT, f"New voter {request.voter.node_id} is not ready to receive requests")
        return
    leader.change = change


def _invalid(q: QuorumState, request: ChangeRequest) -> Problem | None:
    if request.voter.node_id < 0 or request.voter == ReplicaKey(request.voter.node_id):
        return ErrorCode.INVALID_REQUEST, "The request does not name a voter with its directory id"
    if isinstance(request, RemoveVoterRequest):
        return None
    if address_of(request.endpoints, q.config.listener) is None:
        return ErrorCode.INVALID_REQUEST, f"The request has no endpoint for the listener {q.config.listener}"
    if isinstance(request, UpdateVoterRequest):
        lowest, highest = request.kraft_versions
        if lowest < 0 or highest < lowest:
            return ErrorCode.INVALID_REQUEST, f"{lowest} to {highest} is not a range of versions"
    return None


def _blocked(q: QuorumState, leader: Leader, request: ChangeRequest) -> Problem | None:
    """Why no change can begin now: REQUEST_TIMED_OUT is worth a retry."""
    if leader.change is not None or leader.upgrade is not None:
        return TIMED_OUT, "Request timed out waiting for leader to handle previous voter change request"
    if leader.high_watermark < 0:
        return TIMED_OUT, "Request timed out waiting for leader to establish HWM and fence previous voter changes"
    if isinstance(request, UpdateVoterRequest):
        return None
    level = q.kraft_version.last
    if level < DYNAMIC_VOTERS:
        verb = "adding" if isinstance(request, AddVoterRequest) else "removing"
        message = f"Cluster doesn't support {verb} voter because the kraft.version feature is {level}"
        return ErrorCode.UNSUPPORTED_VERSION, message
    if not _is_voter_set_committed(q, leader):
        return TIMED_OUT, "Request timed out waiting for voters to commit the latest voter change"
    return None


def _is_voter_set_committed(q: QuorumState, leader: Leader) -> bool:
    offset = q.voters.last_offset
    return offset is not None and offset < leader.high_watermark


def _conflict(q: QuorumState, request: ChangeRequest) -> Problem | None:
    voters = q.voters.last
    if isinstance(request, AddVoterRequest) and request.voter.node_id in voters.ids:
        return ErrorCode.DUPLICATE_VOTER, f"The voter id {request.voter.node_id} is already part of the set of voters"
    if isinstance(request, RemoveVoterRequest) and voters.remove(request.voter) is None:
        return ErrorCode.VOTER_NOT_FOUND, f"Cannot remove voter {request.voter.node_id} from the set of voters"
    return None


# -- the voter's versions ------------------------------------------------------------------------------------------


def _ask_versions(q: QuorumState, voter: ReplicaKey, endpoints: Endpoints) -> int | None:
    """Ask a voter at the endpoints in the request; returns the request's id, or None if it cannot be sent now."""
    endpoint = address_of(endpoints, q.config.listener)
    if endpoint is None or not q.send(Node(voter.node_id, endpoint.host, endpoint.port), ApiVersionsRequest()):
        return None
    return q.connections.last_id


def on_versions(q: QuorumState, request_id: int, response: ApiVersionsResponse) -> bool:
    """Append the new voter set if the voter supports the quorum's version, and, if it is new, has caught up."""
    leader = q.state
    if not isinstance(leader, Leader) or leader.change is None or leader.change.asked != request_id:
        return True
    change, request = leader.change, leader.change.request
    change.asked = None
    assert not isinstance(request, RemoveVoterRequest), "a removal needs no versions"
    versions = response.kraft_versions or VersionRange()
    problem = _unsuitable(q, leader, request, response)
    if problem is not None:
        _finish(q, leader, *problem)
        return response.error is NONE
    voter = Voter(request.voter, request.endpoints, versions)
    if isinstance(request, UpdateVoterRequest):
        _update(q, leader, voter)
        return True
    voters = q.voters.last.add(voter)
    assert voters is not None, "the change blocks other changes, and its beginning checked the voters"
    q.effects.append(AppendControl(q.epoch, (voters,)))
    if not request.ack_when_committed:
        change.is_answered = True
        q.respond(change.token, VoterChangeResponse())
    return True


def on_versions_failed(q: QuorumState, request_id: int) -> None:
    """The voter did not answer."""
    on_versions(q, request_id, ApiVersionsResponse(ErrorCode.NETWORK_EXCEPTION))


def _unsuitable(
    q: QuorumState, leader: Leader, request: AddVoterRequest | UpdateVoterRequest, response: ApiVersionsResponse
) -> Problem | None:
    voter, level = request.voter.node_id, q.kraft_version.last
    if response.error is not NONE:
        return TIMED_OUT, f"Aborted voter operation for {voter} since API_VERSIONS returned an error {response.error}"
    versions = response.kraft_versions
    if isinstance(request, UpdateVoterRequest) and versions != request.kraft_versions:
        return ErrorCode.INVALID_REQUEST, f"{versions} differs from the versions in the request"
    if versions is None or not versions.supports(level):
        message = f"Aborted voter operation for {voter} since its kraft.version range doesn't support {level}"
        return ErrorCode.INVALID_REQUEST, message
    if isinstance(request, AddVoterRequest) and not leader.has_caught_up(request.voter, q.now_ms):
        return TIMED_OUT, f"Aborted add voter operation for {voter} since it is lagging behind"
    return None


def _update(q: QuorumState, leader: Leader, voter: Voter) -> None:
    if q.kraft_version.last < DYNAMIC_VOTERS:
        reported = leader.reported_voters.update(voter, any_directory=True) if leader.reported_voters else None
        if reported is not None:
            leader.reported_voters = reported
            leader.note_fetch(voter.key, q.now_ms)
        _finish(q, leader, NONE if reported is not None else ErrorCode.VOTER_NOT_FOUND, None)
        return
    if not _is_voter_set_committed(q, leader):
        _finish(q, leader, TIMED_OUT, None)
        return
    voters = q.voters.last.update(voter)
    if voters is None:
        _finish(q, leader, ErrorCode.VOTER_NOT_FOUND, None)
        return
    q.effects.append(AppendControl(q.epoch, (voters,)))
    leader.note_fetch(voter.key, q.now_ms)
    change = leader.change
    assert change is not None, "an update is pending"
    change.is_answered = True
    q.refuse(change.token, change.request, NONE)


# -- the end of a change -------------------------------------------------------------------------------------------


def on_voters_appended(leader: Leader, offset: int) -> None:
    """The leader's log has the new voter set."""
    if leader.change is not None and leader.change.asked is None and leader.change.offset is None:
        leader.change.offset = offset


def on_version_appended(leader: Leader, offset: int) -> None:
    """The leader's log has the new level of kraft.version."""
    if leader.upgrade is not None and leader.upgrade.offset is None:
        leader.upgrade.offset = offset


def on_commit(q: QuorumState, leader: Leader) -> None:
    """Answer changes that are committed. A leader that was removed from the voters resigns."""
    change, upgrade = leader.change, leader.upgrade
    if change is not None and change.offset is not None and change.offset < leader.high_watermark:
        _finish(q, leader, NONE, None)
    if upgrade is not None and upgrade.offset is not None and upgrade.offset < leader.high_watermark:
        leader.upgrade = None
        q.respond(upgrade.token, VoterChangeResponse())
    if not q.is_voter and _is_voter_set_committed(q, leader):
        leader.must_resign = True


def expire(q: QuorumState, leader: Leader) -> int:
    """Answer a change that takes too long. Its record, if appended, may still be committed. Returns its deadline."""
    if leader.change is not None and q.now_ms >= leader.change.deadline_ms:
        _finish(q, leader, TIMED_OUT, None)
    return leader.change.deadline_ms if leader.change is not None else FOREVER


def _finish(q: QuorumState, leader: Leader, error: ErrorCode, message: str | None) -> None:
    change, leader.change = leader.change, None
    if change is not None and not change.is_answered:
        q.refuse(change.token, change.request, error, message)


# -- kraft.version -------------------------------------------------------------------------------------------------


def on_upgrade(q: QuorumState, event: UpgradeRequested) -> None:
    """Raise kraft.version: the log gets the level and, from 0 to 1, the voters as they reported themselves."""
    leader = q.state
    error = q.leader_error(q.epoch)
    if error is not NONE or not isinstance(leader, Leader):
        q.respond(event.token, VoterChangeResponse(error))
        return
    level, present = event.level, q.kraft_version.last
    if level == present:
        q.respond(event.token, VoterChangeResponse())
        return
    problem = _no_upgrade(q, leader, level, present)
    if problem is not None or event.validate_only:
        message = f"Invalid upgrade of kraft.version from version {present} to {level} because {problem}"
        invalid = VoterChangeResponse(ErrorCode.INVALID_UPDATE_VERSION, message)
        q.respond(event.token, invalid if problem is not None else VoterChangeResponse())
        return
    records: tuple[ControlRecord, ...] = (KRaftVersion(level),)
    if leader.reported_voters is not None and leader.reported_voters != q.voters.last:
        records = (*records, leader.reported_voters)
    leader.upgrade, leader.reported_voters = PendingUpgrade(event.token, level), None
    q.effects.append(AppendControl(q.epoch, records))


def _no_upgrade(q: QuorumState, leader: Leader, level: int, present: int) -> str | None:
    reported = leader.reported_voters
    if level < present:
        return "the new version is a downgrade"
    if leader.upgrade is not None or leader.change is not None:
        return "another change of the quorum is pending"
    if reported is None or not reported.supports(level) or not q.config.kraft_versions.supports(level):
        return "not all of the voters support it"
    if any(voter.key == ReplicaKey(voter.key.node_id) for voter in reported):
        return "the directory id of a voter is not known"
    return None

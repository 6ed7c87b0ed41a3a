"""Each coordinator answers a request with an error in the type that the request declares (`Request`)."""

from __future__ import annotations

import sys
from types import UnionType
from typing import Any, get_args, get_origin

import pytest

from ottla.common.errors import ErrorCode
from ottla.common.request import Request
from ottla.coordinators.events import Call
from ottla.coordinators.group import errors as group
from ottla.coordinators.group import events as group_events
from ottla.coordinators.group.share import events as share_groups
from ottla.coordinators.share import events as share_states
from ottla.coordinators.share.shard import error_response as share_error_response
from ottla.coordinators.transaction import errors as transaction
from ottla.coordinators.transaction import events as transaction_events
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest
from ottla.protocol.messages.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.sync_group import SyncGroupRequest
from ottla.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

PARTITION = ("0" * 22, 0)
CASES: list[tuple[Any, list[Request[Any]]]] = [
    (
        group.error_response,
        [
            ConsumerGroupHeartbeatRequest(),
            HeartbeatRequest(),
            JoinGroupRequest(),
            LeaveGroupRequest(),
            OffsetCommitRequest(),
            OffsetDeleteRequest(),
            ShareGroupHeartbeatRequest(),
            SyncGroupRequest(),
            TxnOffsetCommitRequest(),
            group_events.DeleteGroup("g"),
            group_events.DescribeConsumerGroup("g"),
            group_events.DescribeGroup("g"),
            group_events.FetchOffsets(OffsetFetchRequestGroup(group_id="g")),
            group_events.ForceRebalance("g"),
            group_events.ListGroups(),
            group_events.TopicsDeleted(frozenset()),
            share_groups.AlterShareOffsets("g", {}),
            share_groups.DeleteShareOffsets("g", frozenset()),
            share_groups.DescribeShareGroup("g"),
            share_groups.ListShares("g"),
        ],
    ),
    (
        transaction.error_response,
        [
            EndTxnRequest(),
            InitProducerIdRequest(),
            transaction_events.AddPartitions("t", 1, 0, (("orders", 0),)),
            transaction_events.DescribeTransaction("t"),
            transaction_events.ListTransactions(),
        ],
    ),
    (
        share_error_response,
        [
            share_states.DeleteState(share_states.ShareKey("g", *PARTITION)),
            share_states.ReadSummary(share_states.ShareKey("g", *PARTITION)),
            share_states.TopicsDeleted(frozenset()),
        ],
    ),
]


@pytest.mark.parametrize(
    ("respond", "request_"),
    [
        pytest.param(respond, each, id=f"{type(each).__module__.removeprefix('ottla.')}.{type(each).__name__}")
        for respond, requests in CASES
        for each in requests
    ],
)
def test_error_has_the_type_that_the_request_declares(respond: Any, request_: Request[Any]) -> None:
    response = respond(Call(request_), ErrorCode.NOT_COORDINATOR)
    assert isinstance(response, declared_types(type(request_)))


def declared_types(kind: type) -> tuple[type, ...]:
    """Return the types that `Request[...]` names among the bases of a class."""
    (declared,) = (get_args(base)[0] for base in kind.__orig_bases__ if get_args(base))  # type: ignore[attr-defined]
    if isinstance(name := getattr(declared, "__forward_arg__", None), str):
        declared = getattr(sys.modules[kind.__module__], name)
    members = get_args(declared) if isinstance(declared, UnionType) else (declared,)
    return tuple(get_origin(each) or each for each in members)

"""One classic group: its members, generation and protocol, and the checks of requests against them.

`rebalance`, `join`, `sync` and `session` decide on changes; this module applies them. The durable state (members with
their assignments, generation, leader, protocol) is restored by `from_record` after a restart. On a running group, a
record takes effect through `persisted`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode
from ottla.coordinators.group.member import Member, Protocols
from ottla.coordinators.group.states import CAN_REBALANCE, MOVES, Lifecycle, State
from ottla.coordinators.group.subscription import subscribed_topics

if TYPE_CHECKING:
    from ottla.coordinators.events import Call
    from ottla.protocol.group_records import GroupMetadataValue
    from ottla.protocol.messages.join_group import JoinGroupRequest

CONSUMER_PROTOCOL_TYPE = "consumer"


class InitialDelay:
    """The delay of the join phase of a group's first rebalance, which grows while members join (KIP-134)."""

    __slots__ = ("delay_ms", "has_new_member", "remaining_ms")

    def __init__(self, delay_ms: int, rebalance_timeout_ms: int) -> None:
        self.delay_ms = delay_ms
        self.remaining_ms = max(rebalance_timeout_ms - delay_ms, 0)
        """By how much the delay can grow."""
        self.has_new_member = False
        """Whether a member joined since the delay began."""

    def extend(self, most_ms: int) -> int | None:
        """Begin another delay, which is returned, of at most `most_ms`. None if the join phase ends."""
        if not self.remaining_ms or not self.has_new_member:
            return None
        self.has_new_member = False
        delay_ms = min(most_ms, self.remaining_ms)
        self.remaining_ms = max(self.remaining_ms - self.delay_ms, 0)
        self.delay_ms = delay_ms
        return delay_ms


class Group:
    """A group and its members. Times in milliseconds."""

    __slots__ = (
        "awaiting_join",
        "generation",
        "group_id",
        "initial_delay",
        "leader",
        "lifecycle",
        "members",
        "pending_joins",
        "pending_syncs",
        "protocol_name",
        "protocol_type",
        "rebalance_is_due",
        "static_ids",
        "subscribed_topics",
        "supported",
    )

    def __init__(self, group_id: str, wall_ms: int | None) -> None:
        self.group_id = group_id
        self.lifecycle = Lifecycle(wall_ms)
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        # Invariant: the id of a member whenever there are members.
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        # Invariant: instance id -> member id of exactly the static members.
        self.static_ids: dict[str, str] = {}
        # Member ids sent with MEMBER_ID_REQUIRED that have not joined yet (KIP-394). They are not members.
        self.pending_joins: set[str] = set()
        # Members of this generation that have not sent SyncGroup yet.
        self.pending_syncs: set[str] = set()
        # Invariant: the number of members with a parked JoinGroup.
        self.awaiting_join = 0
        # Invariant: by how many members each protocol is supported.
        self.supported: Counter[str] = Counter()
        # Whether the last record was written before a rebalance that its members need, see `from_record`.
        self.rebalance_is_due = False
        # None if unknown: the group is not a consumer group, or its metadata cannot be read.
        self.subscribed_topics: frozenset[str] | None = None
        # Only during the first rebalance.
        self.initial_delay: InitialDelay | None = None

    # -- queries -----------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The present state."""
        return self.lifecycle.state

    @property
    def is_empty(self) -> bool:
        """Whether it is in the state Empty."""
        return self.state is State.EMPTY

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin now."""
        return self.state in CAN_REBALANCE

    @property
    def is_consumer_group(self) -> bool:
        """Whether the members' metadata follow the consumer's embedded protocol."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        """The maximum of the members' rebalance timeouts."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        """Whether every member has joined, so that the join phase can end."""
        return len(self.members) == self.awaiting_join and not self.pending_joins

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member subscribes to `topic`; True for a consumer group whose subscription is unknown."""
        if self.subscribed_topics is None:
            return self.is_consumer_group
        return topic in self.subscribed_topics

    def supports(self, protocol_type: str, names: set[str]) -> bool:
        """Whether a joining member with these protocols has one in common with all members."""
        if self.is_empty:
            return bool(protocol_type) and bool(names)
        size = len(self.members)
        return self.protocol_type == protocol_type and any(self.supported[name] == size for name in names)

    def has_room_for(self, member_id: str, max_size: int) -> bool:
        """Whether `group.max.size` lets this member (empty: a new one) join."""
        if self.state in {State.EMPTY, State.DEAD}:
            return True
        member = self.members.get(member_id)
        if self.state is State.PREPARING:
            # Count members that have rejoined: if the limit was lowered, the members that rejoin last are rejected.
            return (member is not None and member.joining is not None) or self.awaiting_join < max_size
        return member is not None or len(self.members) < max_size

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return NONE, or the error for a request of this member."""
        if instance_id is not None:
            existing = self.static_ids.get(instance_id)
            if existing is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if existing != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, is_transactional: bool = False
    ) -> ErrorCode:
        """Return NONE, or the error for a commit of offsets. Generation -1 is valid for an empty group.

        A transaction may commit without naming a member, and during the sync phase.
        """
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.is_empty:
            return ErrorCode.NONE
        if generation < 0 and not member_id and instance_id is None:
            return ErrorCode.NONE if is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
        error = self.check_member(member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        is_rebalancing = self.state is State.COMPLETING and not is_transactional
        return ErrorCode.REBALANCE_IN_PROGRESS if is_rebalancing else ErrorCode.NONE

    # -- changes -----------------------------------------------------------------------------------------------

    def move(self, state: State, wall_ms: int) -> None:
        """Enter `state`; the move must be in the table."""
        if state not in MOVES[self.state]:
            raise AssertionError(f"group {self.group_id!r} cannot go from {self.state.value} to {state.value}")
        self.lifecycle.move(state, wall_ms)

    def add(self, member: Member, protocol_type: str, joining: Call[JoinGroupRequest] | None = None) -> None:
        """Add a member. The first member sets the protocol type and becomes the leader."""
        if not self.members:
            self.protocol_type = protocol_type
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        self.pending_joins.discard(member.member_id)
        if self.leader is None:
            self.leader = member.member_id
        self.supported.update(name for name, _ in member.protocols)
        self.park_join(member, joining)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending member id. Its parked requests must have been answered."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self.supported.subtract(name for name, _ in member.protocols)
            self.park_join(member, None)
            if member.instance_id is not None:
                del self.static_ids[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)

    def update(self, member: Member, protocols: Protocols, rebalance_ms: int, session_ms: int) -> None:
        """Apply the protocols and timeouts of a member that joins again."""
        self.supported.subtract(name for name, _ in member.protocols)
        member.protocols = protocols
        self.supported.update(name for name, _ in protocols)
        member.rebalance_timeout_ms = rebalance_ms
        member.session_timeout_ms = session_ms

    def park_join(self, member: Member, call: Call[JoinGroupRequest] | None) -> Call[JoinGroupRequest] | None:
        """Replace the parked JoinGroup request of `member`; returns the previous one."""
        before, member.joining = member.joining, call
        self.awaiting_join += (call is not None) - (before is not None)
        return before

    def rename(self, old_id: str, new_id: str) -> None:
        """Give a static member that returned a new member id; it retains its assignment (KIP-345)."""
        # The dictionary is rebuilt to preserve the order of the members, which determines the next leader.
        self.members = {new_id if key == old_id else key: member for key, member in self.members.items()}
        member = self.members[new_id]
        member.member_id = new_id
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.pending_syncs:
            self.pending_syncs.remove(old_id)
            self.pending_syncs.add(new_id)

    def elect_joined_leader(self) -> bool:
        """Ensure that the leader has joined this rebalance; returns False if no member has."""
        if self.leader is None:
            return False
        if self.members[self.leader].joining is None:
            joined = next((member for member in self.members.values() if member.joining is not None), None)
            if joined is None:
                return False
            self.leader = joined.member_id
        return True

    def select_protocol(self) -> str:
        """Count votes: each member votes for its preferred protocol that all support; the first vote breaks ties."""
        size = len(self.members)
        candidates = {name for name, count in self.supported.items() if count == size}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=votes.__getitem__)

    def next_generation(self, wall_ms: int) -> None:
        """End the join phase with the present members."""
        self.generation += 1
        self.pending_syncs.clear()
        self.initial_delay = None
        self.protocol_name = self.select_protocol() if self.members else None
        self.refresh_subscription()
        self.move(State.COMPLETING if self.members else State.EMPTY, wall_ms)

    def refresh_subscription(self) -> None:
        """Read the group's topics from the members' metadata."""
        if not self.is_consumer_group:
            self.subscribed_topics = None
        elif not self.members:
            self.subscribed_topics = frozenset()
        else:
            name = self.protocol_name
            self.subscribed_topics = subscribed_topics(member.metadata(name) for member in self.members.values())

    # -- records -----------------------------------------------------------------------------------------------

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> Group:
        """Restore the group from its last record: Stable, or Empty if it has no members.

        A record without a leader belongs to a consumer group that became a classic group, whose members must rebalance:
        they do not have the partitions of the member that left. The shard starts the rebalance when it is loaded.
        """
        timestamp = value.current_state_timestamp
        group = cls(group_id, None if timestamp == -1 else timestamp)
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        group.generation = value.generation
        group.leader = value.leader
        for row in value.members:
            member = Member(
                member_id=row.member_id,
                instance_id=row.group_instance_id,
                client_id=row.client_id,
                client_host=row.client_host,
                rebalance_timeout_ms=row.session_timeout if row.rebalance_timeout == -1 else row.rebalance_timeout,
                session_timeout_ms=row.session_timeout,
                protocols=((value.protocol or "", row.subscription),),
                assignment=row.assignment,
            )
            group.add(member, value.protocol_type)
        if group.members:
            group.lifecycle.state = State.STABLE
            group.rebalance_is_due = value.leader is None
        if group.leader not in group.members:
            group.leader = next(iter(group.members), None)
        group.refresh_subscription()
        return group

    def persisted(self, value: GroupMetadataValue, wall_ms: int) -> None:
        """Apply a record of this group that this shard appended."""
        if value.generation != self.generation or not value.members:
            return
        for row in value.members:
            if row.group_instance_id is not None:
                known = self.static_ids.get(row.group_instance_id)
                if known is not None and known != row.member_id:
                    self.rename(known, row.member_id)
            member = self.members.get(row.member_id)
            if member is not None:
                member.assignment = row.assignment
        if self.state is State.COMPLETING:
            self.move(State.STABLE, wall_ms)

    def validate(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        members = self.members.values()
        assert all(key == member.member_id for key, member in self.members.items())
        assert self.awaiting_join == sum(member.joining is not None for member in members)
        assert (self.leader in self.members) if self.members else True
        assert self.static_ids == {m.instance_id: m.member_id for m in members if m.instance_id is not None}
        assert not self.pending_joins & self.members.keys()
        assert self.pending_syncs <= self.members.keys()
        counted = Counter(name for member in members for name, _ in member.protocols)
        assert +self.supported == counted
        assert not (self.is_empty and self.members), "an empty group has members"
        if self.state is not State.PREPARING:
            assert not self.awaiting_join, f"a join is parked in {self.state.value}"
        if self.state is not State.COMPLETING:
            assert not any(member.syncing for member in members), f"a sync is parked in {self.state.value}"
        if self.state in {State.COMPLETING, State.STABLE}:
            assert self.members
            assert self.protocol_name is not None
            assert self.supported[self.protocol_name] == len(self.members)

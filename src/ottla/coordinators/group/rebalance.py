"""The two phases of a rebalance: join (membership) and sync (assignment).

1. `prepare` opens the join phase. Members learn of it by their heartbeats and send JoinGroup, which is parked.
2. The join phase ends when all members have joined and no given member id is unused, or when the join timer elapses.
   For a group that was empty the timer is the initial delay, which is extended while members join (KIP-134).
   Otherwise it is the longest rebalance timeout of the members.
3. `complete_join` removes dynamic members that have not joined, increments the generation, selects the protocol and
   answers all parked JoinGroups. The leader's response lists the members.
4. `sync` waits for the leader's assignment, writes it, and answers all parked SyncGroups. Members that have not sent
   SyncGroup within the rebalance timeout are removed, and a new rebalance begins (KAFKA-12679).

Invariant: a group in PreparingRebalance has a join timer and a group in CompletingRebalance has a sync timer, so that a
silent client cannot stop a group. Each phase visits each member once.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.coordinators.events import Effects, LogLine, Moment, log_line
from ottla.coordinators.group.core import Core, accept_join, refuse_join, refuse_sync
from ottla.coordinators.group.group import Group, InitialDelay
from ottla.coordinators.group.member import Member
from ottla.coordinators.group.records import group_record
from ottla.coordinators.group.states import State
from ottla.coordinators.group.timer_keys import Kind


def prepare_or_complete(core: Core, group: Group, now: Moment, reason: str) -> Effects:
    """Handle a change of the membership: start a rebalance, or complete the current join phase if all have joined."""
    if group.can_rebalance:
        return prepare(core, group, now, reason)
    return complete_if_all_joined(core, group, now)


def prepare(core: Core, group: Group, now: Moment, reason: str) -> Effects:
    """Open the join phase. Parked SyncGroups are answered with REBALANCE_IN_PROGRESS."""
    effects: Effects = []
    if group.state is State.COMPLETING:
        effects += fail_syncs(core, group, ErrorCode.REBALANCE_IN_PROGRESS, now)
    group.pending_syncs.clear()
    core.timers.cancel((Kind.SYNC, group.group_id, ""))
    initial = group.is_empty
    group.move(State.PREPARING, now.wall_ms)
    effects.append(
        log_line(
            "Preparing to rebalance group %s in state %s with old generation %d (reason: %s).",
            group.group_id, group.state.value, group.generation, reason,
        )
    )  # fmt: skip
    if initial:
        delay_ms = core.config.initial_rebalance_delay_ms
        group.initial_delay = InitialDelay(delay_ms, group.rebalance_timeout_ms)
        core.timers.set((Kind.JOIN, group.group_id, ""), now.monotonic_ms + delay_ms)
        return effects
    group.initial_delay = None
    if group.all_joined:
        return effects + complete_join(core, group, now)
    _await_joins(core, group, now)
    return effects


def complete_if_all_joined(core: Core, group: Group, now: Moment) -> Effects:
    """Begin the sync phase if all members have joined. The first rebalance always waits for its delay."""
    if group.state is State.PREPARING and group.lifecycle.previous is not State.EMPTY and group.all_joined:
        return complete_join(core, group, now)
    return []


def join_timer_elapsed(core: Core, group: Group, now: Moment) -> Effects:
    """Complete the join phase, or extend it in the first rebalance if members joined since the last extension."""
    if group.state is not State.PREPARING:
        return []
    initial = group.initial_delay
    delay_ms = None if initial is None else initial.extend(core.config.initial_rebalance_delay_ms)
    if delay_ms is not None:
        core.timers.set((Kind.JOIN, group.group_id, ""), now.monotonic_ms + delay_ms)
        return []
    return complete_join(core, group, now)


def complete_join(core: Core, group: Group, now: Moment) -> Effects:
    """End the join phase: remove missing members, increment the generation, answer all parked JoinGroups."""
    effects: Effects = []
    core.timers.cancel((Kind.JOIN, group.group_id, ""))
    missing = [m.member_id for m in group.members.values() if m.joining is None and not m.is_static]
    for member_id in missing:
        group.remove(member_id)
        core.forget_heartbeat(group, member_id)
    if missing:
        effects.append(
            log_line("Group %s removed dynamic members who haven't joined: [%s]", group.group_id, ", ".join(missing))
        )
    if group.members and not group.elect_joined_leader():
        # Only static members that have not rejoined are left. They remain until their sessions expire.
        group.initial_delay = None
        _await_joins(core, group, now)
        message = "Group %s could not complete rebalance because no members rejoined."
        return [*effects, LogLine(message, (group.group_id,), is_error=True)]
    group.next_generation(now.wall_ms)
    if group.is_empty:
        line = log_line("Group %s with generation %d is now empty.", group.group_id, group.generation)
        return [*effects, line, core.append((group_record(group, (), None, {}),))]
    effects.append(
        log_line(
            "Stabilized group %s generation %d with %d members.", group.group_id, group.generation, len(group.members)
        )
    )
    for member in group.members.values():
        call = group.park_join(member, None)
        if call is not None:
            effects.append(accept_join(call, group, member))
        core.expect_heartbeat(group, member, now)
        member.is_new = False
        group.pending_syncs.add(member.member_id)
    core.timers.set((Kind.SYNC, group.group_id, ""), now.monotonic_ms + group.rebalance_timeout_ms)
    return effects


def sync_timer_elapsed(core: Core, group: Group, now: Moment) -> Effects:
    """Remove members that joined this generation and did not send SyncGroup."""
    if group.state not in {State.COMPLETING, State.STABLE} or not group.pending_syncs:
        return []
    missing = sorted(group.pending_syncs)
    for member_id in missing:
        group.remove(member_id)
        core.forget_heartbeat(group, member_id)
    return prepare(core, group, now, f"Removing [{', '.join(missing)}] on pending sync request expiration")


def synced(core: Core, group: Group, member: Member) -> None:
    """Note the SyncGroup of `member`; the last member's cancels the sync timer."""
    group.pending_syncs.discard(member.member_id)
    if not group.pending_syncs:
        core.timers.cancel((Kind.SYNC, group.group_id, ""))


def fail_syncs(core: Core, group: Group, error: ErrorCode, now: Moment) -> Effects:
    """Answer all parked SyncGroups with `error` and clear the assignments."""
    effects: Effects = []
    for member in group.members.values():
        member.assignment = b""
        call, member.syncing = member.syncing, None
        if call is not None:
            effects.append(refuse_sync(call, error))
            core.expect_heartbeat(group, member, now)
    return effects


def fail_joins(group: Group, error: ErrorCode) -> Effects:
    """Answer all parked JoinGroups with `error`."""
    effects: Effects = []
    for member in group.members.values():
        call = group.park_join(member, None)
        if call is not None:
            effects.append(refuse_join(call, error, member.member_id))
    return effects


def drop(core: Core, group: Group, member_id: str) -> Effects:
    """Remove a member. Its parked requests get UNKNOWN_MEMBER_ID, so that a client that is alive joins again."""
    effects: Effects = []
    member = group.members.get(member_id)
    if member is not None:
        call = group.park_join(member, None)
        if call is not None:
            effects.append(refuse_join(call, ErrorCode.UNKNOWN_MEMBER_ID))
        if member.syncing is not None:
            effects.append(refuse_sync(member.syncing, ErrorCode.UNKNOWN_MEMBER_ID))
            member.syncing = None
    group.remove(member_id)
    core.forget_heartbeat(group, member_id)
    return effects


def _await_joins(core: Core, group: Group, now: Moment) -> None:
    core.timers.set((Kind.JOIN, group.group_id, ""), now.monotonic_ms + group.rebalance_timeout_ms)

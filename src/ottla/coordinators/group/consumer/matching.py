"""Matches the group's regular expressions with all topic names, a bounded number of names at a time.

A group has at most one job. It begins with a heartbeat, and continues by timer, so that a cluster with very many
topics does not delay other requests. Its result is written at the end, with the group's next epoch if other topics
match than before.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from ottla.common.errors import KafkaError
from ottla.common.expressions import Matcher, compile_expression
from ottla.coordinators.events import Effects, LogLine, Moment
from ottla.coordinators.group.consumer import records as encode
from ottla.coordinators.group.consumer.change import Change
from ottla.coordinators.group.consumer.group import ConsumerGroup, MatchingJob, ResolvedExpression
from ottla.coordinators.group.consumer.member import ConsumerMember
from ottla.coordinators.group.core import Core
from ottla.coordinators.group.timer_keys import Kind

# As in Kafka, so that many new expressions cause one assignment.
LEAST_REFRESH_INTERVAL_MS = 10_000
# The names that one step matches with all expressions of a group.
MOST_NAMES_AT_ONCE = 500
NOTHING_MATCHED: frozenset[str] = frozenset()
FIELD = "SubscribedTopicRegex"


def update_expression(change: Change, before: ConsumerMember, after: ConsumerMember) -> tuple[bool, bool]:
    """Take in the expression of a member.

    Returns whether it changed, and whether its topics are known, so that they can be assigned at once. Raises
    INVALID_REGULAR_EXPRESSION.
    """
    group, old, new = change.group, before.topic_regex, after.topic_regex
    if old == new:
        return False, False
    if old and group.expression_counts[old] == 1:
        change.records.append(encode.expression_tombstone(group.group_id, old))
    if not new:
        return True, True
    if not group.expression_counts[new]:
        compile_expression(new, FIELD)
    return True, new in group.expressions


def maybe_start(
    change: Change,
    before: ConsumerMember,
    after: ConsumerMember,
    may_describe: Callable[[str], bool] | None = None,
) -> Effects:
    """Start a job if the group has a new expression, if there are new topics, or after the refresh interval.

    Only topics that this member may describe match for the whole group, as in Kafka.
    """
    core, group, now = change.core, change.group, change.now
    counts = group.expression_counts.copy()
    if before.topic_regex != after.topic_regex:
        if before.topic_regex:
            counts[before.topic_regex] -= 1
        if after.topic_regex:
            counts[after.topic_regex] += 1
    regexes = sorted(+counts)
    if not regexes or group.group_id in core.matching:
        return []
    last = next(iter(group.expressions.values()), None)
    age_ms = None if last is None else now.wall_ms - last.timestamp_ms
    if age_ms is not None and 0 <= age_ms <= LEAST_REFRESH_INTERVAL_MS:
        return []
    is_due = age_ms is None or not 0 <= age_ms <= core.config.consumer.regex_refresh_interval_ms
    has_new_topics = last is not None and last.version < core.topics_created_at
    if not (is_due or has_new_topics or group.expressions.keys() != set(regexes)):
        return []
    matchers: dict[str, Matcher] = {}
    lines: Effects = []
    for regex in regexes:
        try:
            matchers[regex] = compile_expression(regex, FIELD)
        except KafkaError as error:
            # Another software accepted it, or the library was removed.
            lines.append(LogLine("[GroupId %s] Ignoring a subscription: %s", (group.group_id, error.message), True))
            matchers[regex] = lambda _name: False
    core.matching[group.group_id] = MatchingJob(core.topics.by_name, core.topics.version, matchers, may_describe)
    core.timers.set((Kind.MATCHING, group.group_id, ""), now.monotonic_ms)
    return lines


def matching_elapsed(core: Core, group: ConsumerGroup | None, group_id: str, now: Moment) -> Effects:
    """Match the next names; at the end, write the result."""
    job = core.matching[group_id]
    if group is None:
        del core.matching[group_id]
        return []
    some = list(islice(job.names, MOST_NAMES_AT_ONCE))
    for regex, matches in job.matchers.items():
        found = [name for name in some if matches(name)]
        if job.may_describe is not None:
            found = [name for name in found if job.may_describe(name)]
        job.matched[regex].update(found)
    if len(some) == MOST_NAMES_AT_ONCE:
        core.timers.set((Kind.MATCHING, group_id, ""), now.monotonic_ms + 1)
        return []
    del core.matching[group_id]
    return _write(core, group, job, now)


def _write(core: Core, group: ConsumerGroup, job: MatchingJob, now: Moment) -> Effects:
    change = Change(core, group, now)
    topics = group.state.topics.copy()
    has_changed = False
    for regex, matched in job.matched.items():
        if not group.expression_counts[regex]:
            continue  # the last member that subscribed by it left meanwhile
        resolved = ResolvedExpression(frozenset(matched), job.version, now.wall_ms)
        known = group.expressions.get(regex)
        before = NOTHING_MATCHED if known is None else known.topics
        has_changed |= before != resolved.topics
        topics.replace_matches(before, resolved.topics)
        change.records.append(encode.expression_record(group.group_id, regex, resolved))
    if not change.records:
        return []
    change.next_epoch(topics, only_if_topics_changed=not has_changed)
    return [*change.lines, core.append(change.records)]

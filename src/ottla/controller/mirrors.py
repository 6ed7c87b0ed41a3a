"""Topics that are copied from another cluster: created and changed as their source, with a read-only state.

The state of a mirrored topic is one of its settings, so that it is created, changed and deleted together with the
topic. A client may request the moves of `MOVES`; only the controller moves from FAILBACK to MIRRORING.

With a prefix, a topic has another name here, but the id of the source's topic. No cluster has two topics of one id, so
that two clusters that mirror each other never copy a topic back. A mirror with a prefix also skips copies of other
clusters: those that the source reports as read-only, and those with a prefix of this cluster's mirrors.

Leader epochs have generations of 2^20. The leader epoch of a mirrored partition is in a later generation than each
epoch of its source, since followers reject batches of a later epoch than their leader's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import INTERNAL_TOPICS, METADATA_TOPIC, Uuid
from ottla.common.slices import Slices
from ottla.common.values import value
from ottla.controller import configs
from ottla.controller.state import MAX_RECORDS_PER_REQUEST, Outcome, State, refuse
from ottla.controller.topics import check_name, place_partitions
from ottla.metadata.image import MIRROR, TOPIC
from ottla.metadata.mirrors import (
    FAILBACK,
    MIRROR_SETTING,
    MIRRORING,
    PREFIX_SETTING,
    STATE_SETTING,
    STOPPED,
    STOPPING,
    TopicNames,
    generation_start,
    is_read_only,
    next_generation,
)
from ottla.metadata.snapshot import partition_record
from ottla.protocol import metadata_records as m

if TYPE_CHECKING:
    from ottla.metadata.image import TopicImage
    from ottla.protocol.message import Message

MOVES: Final = {
    "": (FAILBACK,),
    FAILBACK: (STOPPED,),
    MIRRORING: (STOPPING,),
    STOPPING: (STOPPED,),
    STOPPED: (FAILBACK, ""),
}
# Settings of a topic that belong to one cluster: its replicas, its mirrors, and the registry that it uses.
_OWN_SETTINGS: Final = (
    MIRROR_SETTING,
    STATE_SETTING,
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "min.insync.replicas",
    "remote.storage.enable",
)


@value
class SourceTopic:
    """A topic of the source; `leader_epochs` has one for each partition, `settings` those that are not defaults."""

    name: str
    """Its name at the source."""
    topic_id: Uuid
    leader_epochs: tuple[int, ...]
    settings: Mapping[str, str]
    is_read_only: bool = False
    """Whether the topic is a mirror itself that was not promoted."""


def check_client_change(state: State, name: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raise INVALID_CONFIG or POLICY_VIOLATION unless a client may change the settings of a topic so."""
    old, new = before.get(STATE_SETTING, ""), after.get(STATE_SETTING, "")
    mirror = after.get(MIRROR_SETTING, "")
    if old == new and before.get(MIRROR_SETTING, "") == mirror:
        return
    if new not in MOVES.get(old, ()):
        refuse(
            ErrorCode.POLICY_VIOLATION,
            f"Topic {name} is {old or 'not mirrored'} and cannot become {new or 'a topic without a mirror'}; "
            f"use `ottla mirror`",
        )
    if bool(new) != bool(mirror):
        refuse(ErrorCode.INVALID_CONFIG, f"{MIRROR_SETTING} and {STATE_SETTING} are set and deleted together")
    if new == FAILBACK and (MIRROR, mirror) not in state.image.configs:
        refuse(ErrorCode.INVALID_CONFIG, f"Mirror {mirror} does not exist")
    if new == FAILBACK and not name.startswith(prefix := _names(state, mirror).prefix):
        refuse(ErrorCode.INVALID_CONFIG, f"Topic {name} does not begin with {prefix}, the prefix of mirror {mirror}")
    if new != FAILBACK and new and before.get(MIRROR_SETTING, "") != mirror:
        refuse(ErrorCode.INVALID_CONFIG, f"{MIRROR_SETTING} can only be changed together with the state {FAILBACK}")


def check_copied_settings(name: str, before: Mapping[str, str], changes: Mapping[str, str | None]) -> None:
    """Raise POLICY_VIOLATION if a client would change a setting that a read-only topic has from its source.

    The next comparison would set it back, after e.g. a shorter retention has deleted records.
    """
    if not is_read_only(before):
        return
    changed = [key for key, value in changes.items() if key not in _OWN_SETTINGS and before.get(key) != value]
    if changed:
        refuse(
            ErrorCode.POLICY_VIOLATION,
            f"Topic {name} is a read-only mirror: {', '.join(changed)} can only be changed at its source",
        )


def check_growth(state: State, topic: str) -> None:
    """Raise POLICY_VIOLATION if a client must not add partitions to the topic."""
    if is_read_only(state.image.config(TOPIC, topic)):
        refuse(ErrorCode.POLICY_VIOLATION, f"Topic {topic} is a read-only mirror: its source has the partitions")


def check_deletion(state: State, topic: str) -> None:
    """Raise POLICY_VIOLATION if a mirror would create the topic again, with the same id and the same leader epochs."""
    mirror = state.image.config(TOPIC, topic).get(MIRROR_SETTING, "")
    pattern = state.image.config(MIRROR, mirror).get("topics", "") if mirror else ""
    try:
        is_copied = bool(pattern) and re.fullmatch(pattern, _names(state, mirror).at_source(topic)) is not None
    except re.error:
        return  # Such a mirror does not run.
    if is_copied:
        refuse(
            ErrorCode.POLICY_VIOLATION,
            f"Mirror {mirror} would create topic {topic} again: stop the mirror or change its topics first",
        )


def check_prefix(state: State, mirror: str, settings: Mapping[str, str]) -> None:
    """Raise INVALID_CONFIG or POLICY_VIOLATION unless a mirror may have the prefix that is in its settings."""
    names = TopicNames.of(settings)
    for prefix in names:
        if re.fullmatch("[a-zA-Z0-9._-]*", prefix) is None:
            refuse(ErrorCode.INVALID_CONFIG, f"The prefix {prefix!r} has other characters than names of topics have")
    if names == _names(state, mirror):
        return
    for (kind, topic), own in state.image.configs.items():
        if kind == TOPIC and own.get(MIRROR_SETTING) == mirror:
            refuse(
                ErrorCode.POLICY_VIOLATION,
                f"The prefix of mirror {mirror} cannot change, since it has topic {topic}: create another mirror",
            )


def _names(state: State, mirror: str) -> TopicNames:
    return TopicNames.of(state.image.config(MIRROR, mirror))


def follow(
    state: State, mirror: str, replication_factor: int, topics: Iterable[SourceTopic]
) -> Slices[Outcome[dict[str, str]]]:
    """Create and change the topics of a mirror as their source; returns the problem of each topic that cannot follow.

    The problems have the names of this cluster. Topics that were promoted, and topics of the source that exist here
    without this mirror, stay as they are.
    """
    records: list[Message] = []
    problems: dict[str, str] = {}
    names = _names(state, mirror)
    for at_source in topics:
        yield
        name = names.local(at_source.name)
        if name is None:
            continue
        topic = replace(at_source, name=name)
        try:
            if names.prefix and name not in state.image.topics_by_name:
                if at_source.is_read_only:
                    continue  # It is a copy, perhaps of a topic of this cluster.
                _check_is_original(state, at_source.name)
            copied, refused = _copied(state, topic)
            if refused and state.image.config(TOPIC, name).get(STATE_SETTING) != STOPPED:
                problems[name] = f"Settings that are not valid here are not copied: {refused}; change the source"
            changes = _changes(state, mirror, replication_factor, replace(topic, settings=copied))
            if len(changes) > MAX_RECORDS_PER_REQUEST:
                most = MAX_RECORDS_PER_REQUEST
                refuse(
                    ErrorCode.POLICY_VIOLATION, f"The topic needs {len(changes)} records in the metadata, over {most}"
                )
        except KafkaError as error:
            problems[topic.name] = _problem(error)
            continue
        if len(records) + len(changes) > MAX_RECORDS_PER_REQUEST:
            # The next comparison continues with this topic.
            break
        records += changes
    return Outcome(records, problems)


def _problem(error: KafkaError) -> str:
    """The problem of a topic that cannot follow, with its next step behind a semicolon."""
    text = error.message or error.code.name
    if error.code is not ErrorCode.INVALID_REPLICATION_FACTOR:
        return text
    return f"{text.rstrip('.')}; start brokers, or change the number with `ottla mirror alter --replication-factor`"


def _check_is_original(state: State, name: str) -> None:
    """Raise INVALID_REQUEST if the name of a topic of the source is the name of a copy.

    Other software that copies topics, such as MirrorMaker 2, puts a prefix before their names, too. Its copies have ids
    of their own.
    """
    for (kind, mirror), settings in state.image.configs.items():
        prefix = settings.get(PREFIX_SETTING, "") if kind == MIRROR else ""
        if prefix and name.startswith(prefix):
            refuse(
                ErrorCode.INVALID_REQUEST,
                f"The source's topic {name} is taken for a copy, since {prefix} is the prefix of mirror {mirror} here",
            )


def _changes(state: State, mirror: str, replication_factor: int, source: SourceTopic) -> list[Message]:
    if source.name in INTERNAL_TOPICS or source.name == METADATA_TOPIC:
        refuse(ErrorCode.INVALID_TOPIC_EXCEPTION, "Internal topics are not mirrored")
    local = state.image.topics_by_name.get(source.name)
    if local is None:
        return _created(state, mirror, replication_factor, source)
    own = state.image.config(TOPIC, source.name)
    if own.get(MIRROR_SETTING) != mirror:
        refuse(ErrorCode.TOPIC_ALREADY_EXISTS, _not_owned(own, mirror, is_same=local.topic_id == source.topic_id))
    if own.get(STATE_SETTING) == STOPPED or own.get(STATE_SETTING) == STOPPING:
        return []
    if local.topic_id != source.topic_id:
        refuse(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            "The source has another topic of this name, e.g. one that was recreated; to copy it, exclude the topic "
            "with `ottla mirror alter --topics`, delete it here, and include it again",
        )
    if len(source.leader_epochs) < len(local.partitions):
        count = len(source.leader_epochs)
        refuse(ErrorCode.INVALID_PARTITIONS, f"The source has {count} partitions, fewer than {len(local.partitions)}")
    is_failback = own.get(STATE_SETTING) == FAILBACK
    if is_failback and source.is_read_only:
        # Each would be the source of the other.
        refuse(ErrorCode.INVALID_REQUEST, "The source is a read-only mirror itself: promote it first")
    records = _epochs(local, source, always=is_failback)
    records += _more_partitions(state, local, source)
    records += _settings(state, mirror, source)
    return records


def _not_owned(own: Mapping[str, str], mirror: str, *, is_same: bool) -> str:
    """Why a topic that exists here is not copied, and what can be done."""
    if is_read_only(own):
        return f"The topic belongs to mirror {own[MIRROR_SETTING]}; exclude it from the topics of one of them"
    if is_same:
        return f"The topic is open to clients here; `ottla mirror failback {mirror}` makes it a copy again"
    return (
        "The topic exists here and is another one; exclude it with `ottla mirror alter --topics`, delete it here, or "
        "copy with `--prefix`"
    )


def _created(state: State, mirror: str, replication_factor: int, source: SourceTopic) -> list[Message]:
    check_name(state, source.name, {})
    if source.topic_id in state.image.topics_by_id:
        other = state.image.topics_by_id[source.topic_id].name
        refuse(ErrorCode.INCONSISTENT_TOPIC_ID, f"Topic {other} has the id of the source's topic here")
    settings = {**source.settings, MIRROR_SETTING: mirror, STATE_SETTING: MIRRORING}
    records: list[Message] = [m.TopicRecord(name=source.name, topic_id=source.topic_id)]
    records += [_setting(source.name, name, text) for name, text in settings.items()]
    partitions = place_partitions(state, len(source.leader_epochs), replication_factor)
    first = next_generation(source.leader_epochs)
    records += [
        partition_record(source.topic_id, index, partition._replace(leader_epoch=first))
        for index, partition in enumerate(partitions)
    ]
    return records


def _epochs(local: TopicImage, source: SourceTopic, *, always: bool) -> list[Message]:
    """Begin a new generation of leader epochs for partitions whose source has a later one, or for all."""
    records: list[Message] = []
    for index, partition in local.partitions.items():
        epoch = source.leader_epochs[index]
        if always or epoch >= generation_start(partition.leader_epoch):
            first = next_generation((epoch, partition.leader_epoch))
            changed = partition._replace(leader_epoch=first, partition_epoch=partition.partition_epoch + 1)
            records.append(partition_record(local.topic_id, index, changed))
    return records


def _more_partitions(state: State, local: TopicImage, source: SourceTopic) -> list[Message]:
    present = len(local.partitions)
    additional = len(source.leader_epochs) - present
    if not additional:
        return []
    first = next_generation(source.leader_epochs)
    added = place_partitions(state, additional, len(local.partitions[0].replicas))
    return [
        partition_record(local.topic_id, present + i, partition._replace(leader_epoch=first))
        for i, partition in enumerate(added)
    ]


def _settings(state: State, mirror: str, source: SourceTopic) -> list[Message]:
    """The settings that differ from the source's; a topic in failback is mirrored from now on."""
    own = state.image.config(TOPIC, source.name)
    after = {name: text for name, text in own.items() if name in _OWN_SETTINGS}
    after |= {**source.settings, MIRROR_SETTING: mirror, STATE_SETTING: MIRRORING}
    return [
        _setting(source.name, name, after.get(name)) for name in {**own, **after} if own.get(name) != after.get(name)
    ]


def _copied(state: State, source: SourceTopic) -> tuple[dict[str, str], str]:
    """The settings of the source that this cluster knows, and the names of those that it does not accept.

    E.g. an older version allowed smaller segments. The records of the topic must not wait for that: it has its previous
    value, or the default.
    """
    own = state.image.config(TOPIC, source.name)
    copied, refused = {}, []
    for name, text in source.settings.items():
        if name in _OWN_SETTINGS or state.rules.is_list(TOPIC, name) is None:
            continue
        if own.get(name) != text:
            # Only a change is checked: a check logs a warning for a setting without an effect here.
            try:
                configs.validate(state, TOPIC, source.name, {name: text}, frozenset((name,)), is_new=True)
            except KafkaError:
                refused.append(f"{name}={text}")
                if name in own:
                    copied[name] = own[name]
                continue
        copied[name] = text
    if any(own.get(name) != text for name, text in copied.items()):
        configs.validate(state, TOPIC, source.name, copied, frozenset(), is_new=True)
    return copied, ", ".join(refused)


def _setting(topic: str, name: str, text: str | None) -> m.ConfigRecord:
    return m.ConfigRecord(resource_type=TOPIC, resource_name=topic, name=name, value=text)

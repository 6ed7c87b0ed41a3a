"""Log lines of the controller and of the broker that follows it: topics, partitions, settings, in Kafka's words."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode
from ottla.common.ids import Uuid, uuid_to_text
from ottla.config import BROKER_SETTINGS
from ottla.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from ottla.security import scram

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataImage, TopicImage
    from ottla.protocol.metadata_records import UserScramCredentialRecord

logger = logging.getLogger(__name__)

HIDDEN = "[hidden]"
# At most this many topics or resources of one change get their own line: a line takes 20 us, and a request may name
# thousands.
MOST_LINES = 100


def log_results(node_id: int, api: str, results: Iterable[tuple[str, int, str | None]]) -> None:
    """Log the results of a request to the controller: (name, error code, message) for each topic."""
    rest = iter(results)
    shown = [
        f"{name}: {'SUCCESS' if not code else ErrorCode(code).name}{f' ({message})' if code and message else ''}"
        for name, code, message in islice(rest, MOST_LINES)
    ]
    if not shown:
        return
    more = " and more" if next(rest, None) is not None else ""
    logger.info("[QuorumController id=%d] %s result(s): %s%s", node_id, api, ", ".join(shown), more)


def log_changes(node_id: int, old: MetadataImage | None, new: MetadataImage) -> None:
    """Log how `new` differs from `old`. For the first image, log the partitions led here and the dynamic settings."""
    if old is None or old.topics_by_id is not new.topics_by_id:
        _log_topics(node_id, old.topics_by_id if old is not None else {}, new.topics_by_id, is_start=old is None)
    if old is None or old.configs is not new.configs:
        _log_configs(node_id, old.configs if old is not None else {}, new.configs, is_start=old is None)
    if old is not None and old.scram_credentials is not new.scram_credentials:
        _log_credentials(node_id, old.scram_credentials, new.scram_credentials)


def _log_credentials(
    node_id: int,
    old: Mapping[tuple[str, int], UserScramCredentialRecord],
    new: Mapping[tuple[str, int], UserScramCredentialRecord],
) -> None:
    """Log whose credentials changed, without the credentials."""
    removed = [("", key) for key in old if key not in new]
    changed = [
        ("modifying existing" if key in old else "creating new", key)
        for key, record in new.items()
        if old.get(key) is not record
    ]
    for what, (user, mechanism) in islice(chain(removed, changed), MOST_LINES):
        if what:
            text = "[QuorumController id=%d] Replayed UserScramCredentialRecord %s entry for %s with mechanism %s."
            logger.info(text, node_id, what, user, _mechanism(mechanism))
        else:
            text = "[QuorumController id=%d] Replayed RemoveUserScramCredentialRecord for %s with mechanism %s."
            logger.info(text, node_id, user, _mechanism(mechanism))
    _log_rest(node_id, "UserScramCredentialRecord", len(removed) + len(changed))


def _mechanism(number: int) -> str:
    """Kafka's name in log lines: SCRAM_SHA_256."""
    return next((name.replace("-", "_") for name, each in scram.NUMBERS.items() if each == number), str(number))


def _log_topics(
    node_id: int, old: Mapping[Uuid, TopicImage], new: Mapping[Uuid, TopicImage], *, is_start: bool
) -> None:
    added = deleted = created = 0
    removed = old.keys() - new.keys()
    for topic_id in removed:
        deleted += len(old[topic_id].partitions)
    for topic_id in islice(removed, MOST_LINES):
        text = "[QuorumController id=%d] Replayed RemoveTopicRecord for topic %s with ID %s."
        logger.info(text, node_id, old[topic_id].name, uuid_to_text(topic_id))
    _log_rest(node_id, "RemoveTopicRecord", len(removed))
    changed = [(topic_id, topic) for topic_id, topic in new.items() if old.get(topic_id) is not topic]
    for topic_id, topic in changed:
        before = old.get(topic_id)
        added += len(topic.partitions) - (len(before.partitions) if before is not None else 0)
        if before is None and not is_start:
            created += 1
            if created <= MOST_LINES:
                text = "[QuorumController id=%d] Replayed TopicRecord for topic %s with topic ID %s."
                logger.info(text, node_id, topic.name, uuid_to_text(topic_id))
    _log_rest(node_id, "TopicRecord", created)
    if deleted:
        logger.info("[Broker id=%d] Deleting %d partition(s).", node_id, deleted)
    if added:
        logger.info("[Broker id=%d] Transitioning %d partition(s) to local leaders.", node_id, added)


def _log_rest(node_id: int, record: str, count: int) -> None:
    if count > MOST_LINES:
        text = "[QuorumController id=%d] Replayed %d more records of type %s."
        logger.info(text, node_id, count - MOST_LINES, record)


_KINDS = {TOPIC: "topic", BROKER: "node", GROUP: "group", CLIENT_METRICS: "client metrics"}
_Configs = Mapping[tuple[int, str], Mapping[str, str]]


def _log_configs(node_id: int, old: _Configs, new: _Configs, *, is_start: bool) -> None:
    changed = [key for key in old.keys() | new.keys() if old.get(key) is not new.get(key)]
    changed = [key for key in changed if old.get(key) != new.get(key) and not (is_start and key[0] != BROKER)]
    for key in changed[:MOST_LINES]:
        kind, name = key
        what = f"{_KINDS.get(kind, 'resource')} {name}" if kind != BROKER or name else "cluster"
        settings = ", ".join(f"{each} -> {_shown(kind, each, value)}" for each, value in new.get(key, {}).items())
        text = "[DynamicConfigPublisher broker id=%d] Updating %s with new configuration : %s"
        logger.info(text, node_id, what, settings)
    if len(changed) > MOST_LINES:
        text = "[DynamicConfigPublisher broker id=%d] Updating %d more resources with new configurations."
        logger.info(text, node_id, len(changed) - MOST_LINES)


def _shown(kind: int, name: str, value: str) -> str:
    if kind in (TOPIC, GROUP, CLIENT_METRICS):
        return value
    setting = BROKER_SETTINGS.get(name)
    return HIDDEN if setting is None or setting.sensitive else value

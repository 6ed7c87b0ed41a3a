"""Whose setting a name is that a client does not have: of topics, of groups, or of another client.

Only the error about an unknown setting uses this module. `foreign_settings` has the names in other libraries.
"""

from __future__ import annotations

from collections.abc import Collection
from difflib import SequenceMatcher, get_close_matches
from typing import Final, NamedTuple

from ottla.clients.consumer.settings import CONSUMER_OPTIONS
from ottla.clients.producer.settings import PRODUCER_OPTIONS
from ottla.clients.share.settings import SHARE_OPTIONS
from ottla.config import GROUP_SETTINGS, TOPIC_SETTINGS

SIMILAR: Final = 0.6


class Owner(NamedTuple):
    """The owner of the settings `names`, and how they are set there; `{}` is the name of the setting."""

    names: Collection[str]
    whose: str
    how: str = ""


OWNERS: Final = (
    Owner(TOPIC_SETTINGS, "topics", "create_topic(config={{...}}), or `ottla topic alter TOPIC --config {}=VALUE`"),
    Owner(
        GROUP_SETTINGS,
        "groups",
        "Admin.alter_config(ConfigResource.group(GROUP), {{'{0}': VALUE}}), "
        "or `ottla config set group GROUP {0}=VALUE`",
    ),
    Owner([option.name for option in PRODUCER_OPTIONS], "producers"),
    Owner([option.name for option in CONSUMER_OPTIONS], "consumers"),
    Owner([option.name for option in SHARE_OPTIONS], "share consumers"),
)
_SUBSCRIBE = "topics are passed to subscribe() or send()"
_CREATE = "partitions and replicas are chosen when a topic is created: create_topic(TOPIC, partitions=N)"
# Names that no client has.
_INVENTED: Final = {
    "brokers": "bootstrap_servers names some brokers as host:port",
    "servers": "bootstrap_servers names some brokers as host:port",
    "topic": _SUBSCRIBE,
    "topics": _SUBSCRIBE,
    "partitions": _CREATE,
    "num.partitions": _CREATE,
    "replication.factor": _CREATE,
}
_SHARE: Final = "share."


def hint(name: str, own: Collection[str]) -> str | None:
    """Return the error's text for a setting that others have, or nearly have; None if it is more similar to `own`.

    `own` are the settings of the client.
    """
    wanted = name.lower().replace("_", ".")
    if wanted in _INVENTED:
        return f"There is no setting {name!r}: {_INVENTED[wanted]}"
    # A setting of consumers may be a setting of the whole group for share consumers.
    of_group = f"{_SHARE}{wanted}"
    if of_group in GROUP_SETTINGS and any(each.startswith(_SHARE) for each in own):
        wanted = of_group
    for owner in OWNERS:
        if wanted in owner.names:
            return f"There is no setting {name!r} here: {wanted} is a setting of {owner.whose}{_how(owner, wanted)}"
    nearest, owner = max(((_nearest(wanted, each.names), each) for each in OWNERS), key=lambda row: row[0].similarity)
    if not nearest.name or nearest.similarity <= _nearest(wanted, own).similarity:
        return None
    how = _how(owner, nearest.name)
    return f"There is no setting {name!r} here; did you mean {nearest.name!r}, a setting of {owner.whose}{how}?"


class _Nearest(NamedTuple):
    similarity: float
    name: str


def _nearest(wanted: str, names: Collection[str]) -> _Nearest:
    close = get_close_matches(wanted, names, n=1, cutoff=SIMILAR)
    # The arguments in the order of `get_close_matches`: the ratio is not symmetric.
    return _Nearest(SequenceMatcher(None, close[0], wanted).ratio(), close[0]) if close else _Nearest(0.0, "")


def _how(owner: Owner, name: str) -> str:
    return f", set by {owner.how.format(name)}" if owner.how else ""

"""What is to go wrong, and with which requests: plain data, so that it can be sent to a broker beside the tests."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from ottla.common.errors import ErrorCode
from ottla.protocol.registry import API

MOST_HITS_KEPT = 100
API_BY_NAME = {info.name.lower(): info for info in API.values()}
# Requests that name topics, so that a fault can be for one of them.
TOPIC_APIS = frozenset(
    {
        "Produce",
        "Fetch",
        "ListOffsets",
        "Metadata",
        "OffsetCommit",
        "OffsetForLeaderEpoch",
        "CreateTopics",
        "DeleteTopics",
        "DeleteRecords",
        "CreatePartitions",
        "DescribeProducers",
        "DescribeTopicPartitions",
    }
)


class Kind(Enum):
    """What a rule does to a request."""

    FAIL = "fail"
    DELAY = "delay"
    SWALLOW = "swallow"
    DISCONNECT = "disconnect"
    CORRUPT = "corrupt"


class Hit(NamedTuple):
    """One request that a fault met: seconds since the fault was injected, API, client id, and which of its topics."""

    after_s: float
    api: str
    client_id: str | None
    about: str

    def __str__(self) -> str:
        about = f" of {self.about}" if self.about else ""
        return f"+{self.after_s:.3f} s: {self.api}{about} by client {self.client_id!r}"


@dataclass(slots=True)
class Rule:
    """One fault. `apis` empty is every API; `times` None is as often as there is something to hit."""

    kind: Kind
    apis: tuple[str, ...]
    times: int | None = 1
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    client_id: str | None = None
    error: ErrorCode = ErrorCode.NONE
    seconds: float = 0.0
    close: bool = True
    count: int = 0
    hits: list[Hit] = field(default_factory=list)

    @property
    def spent(self) -> bool:
        """Whether it has hit as often as it may."""
        return self.times is not None and self.count >= self.times

    def matches(self, api: str, client_id: str | None) -> bool:
        """Whether such a request may be hit, as far as its header tells."""
        return (
            not self.spent
            and (not self.apis or api in self.apis)
            and (self.client_id is None or self.client_id == client_id)
        )

    def wants(self, topic: str | None, partition: int | None) -> bool:
        """Whether this part of a request is meant; a partition of None stands for all of the topic's."""
        return (self.topic is None or topic == self.topic) and (
            self.partition is None or partition is None or partition == self.partition
        )

    def hit(self, hit: Hit) -> None:
        """Count it; the first hundred are kept."""
        self.count += 1
        if len(self.hits) < MOST_HITS_KEPT:
            self.hits.append(hit)

    def copy(self) -> Rule:
        """As it is now."""
        return replace(self, hits=list(self.hits))

    def __str__(self) -> str:
        what = "|".join(self.apis) or "any request"
        words = [what]
        if self.kind is Kind.FAIL:
            words.append(self.error.name)
        if self.kind is Kind.DELAY:
            words.append(f"{self.seconds:g} s")
        for name in ("topic", "partition", "offset", "client_id"):
            value = getattr(self, name)
            if value is not None:
                words.append(f"{name}={value!r}")
        words.append(f"times={self.times}")
        return f"{self.kind.value}({', '.join(words)})"


def checked_apis(names: str | tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """API names as Kafka spells them; raises ValueError with those that are similar."""
    found = []
    for name in (names,) if isinstance(names, str) else names:
        info = API_BY_NAME.get(name.lower().replace("_", ""))
        if info is None:
            from difflib import get_close_matches

            close = get_close_matches(name.lower(), API_BY_NAME, 3)
            similar = ", ".join(API_BY_NAME[each].name for each in close)
            raise ValueError(f"Kafka has no API {name!r}" + (f"; similar: {similar}" if similar else ""))
        found.append(info.name)
    return tuple(found)


def checked_error(error: str | int | ErrorCode) -> ErrorCode:
    """An error code by its name in Kafka, or its number; raises ValueError."""
    if isinstance(error, int):
        return ErrorCode(error)
    name = error.upper()
    for each in (name, f"{name}_EXCEPTION"):
        if each in ErrorCode.__members__:
            return ErrorCode[each]
    from difflib import get_close_matches

    close = ", ".join(get_close_matches(name, ErrorCode.__members__, 3))
    raise ValueError(f"Kafka has no error {error!r}" + (f"; similar: {close}" if close else ""))

"""Rules of injected faults: the fault and the requests it applies to. Plain data, which can be sent to a process."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from enum import Enum
from typing import NamedTuple

from ottla.common.errors import ErrorCode
from ottla.protocol.registry import API

MOST_HITS_KEPT = 100
API_BY_NAME = {info.name.lower(): info for info in API.values()}
# Requests with topics, for which a fault can be limited to one of them.
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
    """The effect of a rule on a request."""

    FAIL = "fail"
    DELAY = "delay"
    SWALLOW = "swallow"
    DISCONNECT = "disconnect"
    CORRUPT = "corrupt"


class Hit(NamedTuple):
    """A request that a fault hit: seconds since the injection, API, client id, and the part of the request."""

    after_s: float
    api: str
    client_id: str | None
    about: str

    def __str__(self) -> str:
        about = f" of {self.about}" if self.about else ""
        return f"+{self.after_s:.3f} s: {self.api}{about} by client {self.client_id!r}"


@dataclass(slots=True)
class Rule:
    """One fault. Empty `apis` means every API; `times` of None means no limit."""

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
        """Whether the limit of hits is reached."""
        return self.times is not None and self.count >= self.times

    def matches(self, api: str, client_id: str | None) -> bool:
        """Whether the rule may apply to a request with this header."""
        return (
            not self.spent
            and (not self.apis or api in self.apis)
            and (self.client_id is None or self.client_id == client_id)
        )

    def wants(self, topic: str | None, partition: int | None) -> bool:
        """Whether the rule applies to this part of a request; a partition of None means all of the topic."""
        return (self.topic is None or topic == self.topic) and (
            self.partition is None or partition is None or partition == self.partition
        )

    def hit(self, hit: Hit) -> None:
        """Count a hit; the first hundred are stored."""
        self.count += 1
        if len(self.hits) < MOST_HITS_KEPT:
            self.hits.append(hit)

    def copy(self) -> Rule:
        """A copy of the current state."""
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
    """API names in Kafka's spelling. Raises ValueError with similar names."""
    found = []
    for name in (names,) if isinstance(names, str) else names:
        info = API_BY_NAME.get(name.lower().replace("_", ""))
        if info is None:
            close = get_close_matches(name.lower(), API_BY_NAME, 3)
            similar = ", ".join(API_BY_NAME[each].name for each in close)
            raise ValueError(f"Kafka has no API {name!r}" + (f"; similar: {similar}" if similar else ""))
        found.append(info.name)
    return tuple(found)


def checked_error(error: str | int | ErrorCode) -> ErrorCode:
    """An error code from Kafka's name or number. Raises ValueError."""
    if isinstance(error, int):
        return ErrorCode(error)
    name = error.upper()
    for each in (name, f"{name}_EXCEPTION"):
        if each in ErrorCode.__members__:
            return ErrorCode[each]
    close = ", ".join(get_close_matches(name, ErrorCode.__members__, 3))
    raise ValueError(f"Kafka has no error {error!r}" + (f"; similar: {close}" if close else ""))

"""Metrics of mirrors: how far the copies are that this node leads. A mirror has one sample, whatever its partitions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.metrics import families as f
from ottla.common.slices import Slices
from ottla.metadata.mirrors import PAUSED, STOPPING
from ottla.metrics.exposition import Samples, labelled

if TYPE_CHECKING:
    from ottla.broker.mirrors.mirrors import Mirrors

_AT_ONCE: Final = 200
# A copy whose lag is unknown, e.g. since the source has never answered.
_UNKNOWN: Final = -1


def add_mirrors(samples: Samples, mirrors: Mirrors) -> Slices[None]:
    """Add the figures of each mirror."""
    for name, mirror in mirrors.running().items():
        states: Counter[str] = Counter()
        lag = unanswered = oldest_ms = truncated = skipped = failing = 0
        for number, each in enumerate(mirror.rows(), 1):
            row: dict[str, Any] = each
            states[row["state"]] += 1
            truncated += row.get("truncated", 0)
            skipped += row.get("skipped", 0)
            failing += bool(row["problem"])
            lag += max(row["lag"], 0)
            age_ms = row.get("age_ms", _UNKNOWN)
            if row["state"] not in (PAUSED, STOPPING):
                unanswered += row["lag"] == _UNKNOWN or age_ms == _UNKNOWN
            oldest_ms = max(oldest_ms, age_ms)
            if number % _AT_ONCE == 0:
                yield
        labels = labelled(mirror=name)
        for state, count in states.items():
            samples.add(f.MIRROR_PARTITIONS, count, labelled(mirror=name, state=state))
        samples.add(f.MIRROR_LAG, lag, labels)
        samples.add(f.MIRROR_UNANSWERED, unanswered, labels)
        samples.add(f.MIRROR_ANSWER_AGE, oldest_ms / 1000, labels)
        samples.add(f.MIRROR_TRUNCATED, truncated, labels)
        samples.add(f.MIRROR_SKIPPED, skipped, labels)
        problems, groups_age_ms = mirror.measure()
        samples.add(f.MIRROR_PROBLEMS, problems + failing, labels)
        if groups_age_ms != _UNKNOWN:
            samples.add(f.MIRROR_GROUPS_AGE, groups_age_ms / 1000, labels)
        yield

"""The figures of mirrors in a scrape, from the reports of their partitions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.metrics import families, mirror_rows
from ottla.broker.mirrors.mirror import Measures
from ottla.broker.mirrors.mirrors import Mirrors
from ottla.common.slices import finish
from ottla.metrics.exposition import Samples

ROWS: tuple[dict[str, Any], ...] = (
    {"state": "MIRRORING", "lag": 7, "age_ms": 1500, "truncated": 2, "skipped": 0, "problem": ""},
    {"state": "MIRRORING", "lag": 3, "age_ms": 500, "truncated": 0, "skipped": 5, "problem": "refused"},
    {"state": "MIRRORING", "lag": 1, "age_ms": -1, "truncated": 0, "skipped": 0, "problem": ""},
    {"state": "FAILED", "lag": -1, "problem": "deleted"},
    {"state": "PAUSED", "lag": -1, "problem": ""},
)


def mirrors(groups_age_ms: int) -> Mirrors:
    mirror = SimpleNamespace(rows=lambda: iter(ROWS), measure=lambda: Measures(4, groups_age_ms))
    return cast("Mirrors", SimpleNamespace(running=lambda: {"dr": mirror}))


def scraped(groups_age_ms: int = 250) -> list[str]:
    samples = Samples(families.FAMILIES)
    finish(mirror_rows.add_mirrors(samples, mirrors(groups_age_ms)))
    lines = b"".join(finish(samples.render("text/plain"))).decode().splitlines()
    return [line for line in lines if line.startswith("ottla_mirror_")]


def test_mirror_has_the_sums_of_its_partitions_and_the_oldest_answer() -> None:
    assert scraped() == [
        'ottla_mirror_partitions{mirror="dr",state="MIRRORING"} 3',
        'ottla_mirror_partitions{mirror="dr",state="FAILED"} 1',
        'ottla_mirror_partitions{mirror="dr",state="PAUSED"} 1',
        'ottla_mirror_lag_records{mirror="dr"} 11',
        'ottla_mirror_unanswered_partitions{mirror="dr"} 2',
        'ottla_mirror_answer_age_seconds{mirror="dr"} 1.5',
        'ottla_mirror_truncated_records{mirror="dr"} 2',
        'ottla_mirror_skipped_offsets{mirror="dr"} 5',
        'ottla_mirror_problems{mirror="dr"} 6',
        'ottla_mirror_groups_age_seconds{mirror="dr"} 0.25',
    ]
    assert not [line for line in scraped(groups_age_ms=-1) if "groups_age" in line]


def test_partitions_are_read_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_rows, "_AT_ONCE", 2)
    assert len(list(mirror_rows.add_mirrors(Samples(families.FAMILIES), mirrors(-1)))) == 3

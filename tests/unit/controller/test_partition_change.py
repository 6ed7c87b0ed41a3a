"""The rules for a change of one partition: ISR, eligible leader replicas, leader, epochs, reassignment."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.partition_change import RECOVERING, ChangeRules, Election, Target, partition_change
from ottla.metadata.image import NO_LEADER, PartitionImage

FIELDS = (
    "isr", "leader", "replicas", "removing_replicas", "adding_replicas", "leader_recovery_state", "directories",
    "eligible_leader_replicas", "last_known_elr",
)  # fmt: skip
TOPIC_ID = b"t" * 16
DIRECTORIES = {broker_id: bytes([broker_id]) * 16 for broker_id in range(1, 7)}


def partition(replicas: tuple[int, ...], isr: tuple[int, ...], leader: int, **others: Any) -> PartitionImage:
    directories = tuple(DIRECTORIES[replica] for replica in replicas)
    return PartitionImage(replicas, isr, leader, 5, 7, directories, **others)


def changes(before: PartitionImage, target: Target, acceptable: set[int], **rules: Any) -> dict[str, Any] | None:
    """Return the fields that the record sets, without its key; None if there is no record."""
    added = {r: DIRECTORIES[r] for r in target.replicas or () if r not in before.replicas}
    target = target._replace(directories={**added, **target.directories})
    record = partition_change(TOPIC_ID, 3, before, target, ChangeRules(frozenset(acceptable), **rules))
    if record is None:
        return None
    assert (record.topic_id, record.partition_id) == (TOPIC_ID, 3)
    found = {name: value for name in FIELDS if (value := getattr(record, name)) is not None}
    for name, default in (("leader", -2), ("leader_recovery_state", -1)):
        if found[name] == default:
            del found[name]
    return found


FULL = partition((1, 2, 3), (1, 2, 3), 1)
ELR = {"eligible_enabled": True, "min_isr": 2}

CASES: list[tuple[str, PartitionImage, Target, set[int], dict[str, Any], dict[str, Any] | None]] = [
    ("nothing changes", FULL, Target(), {1, 2, 3}, {}, None),
    ("a follower leaves the ISR in the same epoch", FULL, Target(isr=(1, 3)), {1, 2, 3}, {}, {"isr": [1, 3]}),
    ("older brokers need a new epoch for a shrink", FULL, Target(isr=(1, 3)), {1, 2, 3},
     {"shrink_starts_epoch": True}, {"isr": [1, 3], "leader": 1}),
    ("an expansion needs none", partition((1, 2), (1,), 1), Target(isr=(1, 2)), {1, 2},
     {"shrink_starts_epoch": True}, {"isr": [1, 2]}),
    ("the next replica in sync leads", FULL, Target(isr=(3, 2)), {2, 3}, {}, {"isr": [3, 2], "leader": 2}),
    ("a leader in the ISR is retained", partition((1, 2), (1, 2), 2), Target(), {1, 2}, {}, None),
    ("a preferred election moves it", partition((1, 2), (1, 2), 2), Target(), {1, 2},
     {"election": Election.PREFERRED}, {"leader": 1}),
    ("but not to a replica outside the ISR", partition((1, 2), (2,), 2), Target(), {1, 2},
     {"election": Election.PREFERRED}, None),
    ("the last in-sync replica stays", partition((1, 2), (1,), 1), Target(isr=()), {2}, {}, {"leader": NO_LEADER}),
    ("and leads again", partition((1, 2), (1,), NO_LEADER), Target(), {1, 2}, {}, {"leader": 1}),
    ("another replica waits for it", partition((1, 2), (1,), NO_LEADER), Target(), {2}, {}, None),
    ("an unclean leader replaces the ISR", partition((1, 2), (1,), 1), Target(isr=()), {2},
     {"election": Election.UNCLEAN}, {"isr": [2], "leader": 2, "leader_recovery_state": RECOVERING}),
    ("an unclean election prefers the ISR", partition((1, 2, 3), (3,), NO_LEADER), Target(), {1, 3},
     {"election": Election.UNCLEAN}, {"leader": 3}),
    # Eligible leader replicas
    ("below min.insync.replicas a replica stays eligible", partition((1, 2, 3), (1, 2), 1), Target(isr=(1,)), {1},
     ELR, {"isr": [1], "eligible_leader_replicas": [2]}),
    ("at min.insync.replicas it does not", FULL, Target(isr=(1, 2)), {1, 2}, ELR, {"isr": [1, 2]}),
    ("the last one leaves an empty ISR", partition((1, 2, 3), (1,), 1, eligible_leader_replicas=(2,)), Target(isr=()),
     set(), ELR, {"isr": [], "leader": NO_LEADER, "eligible_leader_replicas": [2, 1], "last_known_elr": [1]}),
    ("an eligible replica leads cleanly",
     partition((1, 2, 3), (), NO_LEADER, eligible_leader_replicas=(2, 1), last_known_elr=(1,)), Target(), {2, 3}, ELR,
     {"isr": [2], "leader": 2, "eligible_leader_replicas": [1], "last_known_elr": []}),
    ("a replica that lost its records is not eligible",
     partition((1, 2, 3), (1,), 1, eligible_leader_replicas=(2,)), Target(isr=(), unclean_shutdown=1), set(), ELR,
     {"isr": [], "leader": NO_LEADER, "last_known_elr": [1]}),
    ("the last known leader leads if no replica is eligible",
     partition((1, 2), (), NO_LEADER, last_known_elr=(2,)), Target(), {1, 2}, ELR,
     {"isr": [2], "leader": 2, "leader_recovery_state": RECOVERING, "last_known_elr": []}),
    ("but only while it is available", partition((1, 2), (), NO_LEADER, last_known_elr=(2,)), Target(), {1}, ELR, None),
    ("a full ISR clears them", partition((1, 2), (1,), 1, eligible_leader_replicas=(2,)), Target(isr=(1, 2)), {1, 2},
     ELR, {"isr": [1, 2], "eligible_leader_replicas": []}),
    ("without the feature the eligible replicas of a stock cluster wait",
     partition((1, 2, 3), (), NO_LEADER, eligible_leader_replicas=(2,)), Target(), {3}, {}, None),
    # Reassignment
    ("a reassignment adds first", FULL, Target(replicas=(1, 2, 4, 3), adding=(4,), removing=(3,)), {1, 2, 3, 4},
     {}, {"replicas": [1, 2, 4, 3], "adding_replicas": [4], "removing_replicas": [3],
          "directories": [DIRECTORIES[r] for r in (1, 2, 4, 3)]}),
    ("and completes when they are in sync",
     partition((1, 2, 4, 3), (1, 2, 3), 1, adding_replicas=(4,), removing_replicas=(3,)), Target(isr=(1, 2, 3, 4)),
     {1, 2, 3, 4}, {}, {"isr": [1, 2, 4], "replicas": [1, 2, 4], "adding_replicas": [], "removing_replicas": [],
                        "leader": 1, "directories": [DIRECTORIES[r] for r in (1, 2, 4)]}),
    ("a removed leader is replaced",
     partition((4, 2, 1), (1, 2), 1, adding_replicas=(4,), removing_replicas=(1,)), Target(isr=(1, 2, 4)),
     {1, 2, 4}, {}, {"isr": [2, 4], "replicas": [4, 2], "adding_replicas": [], "removing_replicas": [], "leader": 4,
                     "directories": [DIRECTORIES[r] for r in (4, 2)]}),
    ("a remaining replica out of sync delays the end",
     partition((1, 2, 4, 3), (1, 3), 1, adding_replicas=(4,), removing_replicas=(3,)), Target(isr=(1, 3, 4)),
     {1, 2, 3, 4}, {}, {"isr": [1, 3, 4]}),
    ("a replica moves between directories", FULL, Target(directories={2: b"d" * 16}), {1, 2, 3}, {},
     {"directories": [DIRECTORIES[1], b"d" * 16, DIRECTORIES[3]]}),
    ("older metadata names no directories", FULL, Target(directories={2: b"d" * 16}), {1, 2, 3},
     {"names_directories": False}, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "target", "acceptable", "rules", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_partition_changes_by_kafkas_rules(
    before: PartitionImage,
    target: Target,
    acceptable: set[int],
    rules: dict[str, Any],
    expected: dict[str, Any] | None,
) -> None:
    assert changes(before, target, acceptable, **rules) == expected

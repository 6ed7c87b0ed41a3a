"""A mirror between two clusters, each of one node, behind links that delay, stall and are cut.

Ten round trips: each is a failover, a failback, and the same in the other direction. Producers write to the active
cluster until each change. In every second one, the active cluster is killed behind a cut link, while the copy is
behind. Then exactly the records are missing that the promotion reports, at the end of each partition. An independent
checker compares all offsets and values of both clusters after each change, and at the end the fate of each record by
its producer. `OTTLA_CHAOS_ROUND_TRIPS` sets the number of round trips.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from ottla.clients.admin import Admin
from tests.cluster.processes import wait_until

from .cluster_load import PARTITIONS, TIMEOUT_S, TOPIC, check, stop, stored, three_writers
from .mirror_sites import SMALL_FETCHES, BrokerSite, Trips, disturb

ROUND_TRIPS = int(os.environ.get("OTTLA_CHAOS_ROUND_TRIPS", "10"))
SEED = int(os.environ.get("OTTLA_CHAOS_SEED", "5"))
# A round trip takes 100 ms.
DELAY_S = 0.05
FAULTS = 20


@pytest.mark.long
@pytest.mark.timeout(400)
def test_round_trips_lose_exactly_the_reported_records(tmp_path: Path) -> None:
    first, second = (BrokerSite(tmp_path / name, SMALL_FETCHES) for name in ("first", "second"))
    trips = Trips(first, second)
    try:
        with Admin(first.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        for here, there, topics in ((first, second, ""), (second, first, TOPIC)):
            here.ottla("create", "dr", "--from", there.link.bootstrap, "--topics", topics)
        wait_until(second.has_all, TIMEOUT_S)
        for trip in range(2 * ROUND_TRIPS):
            trips.unplanned() if trip % 2 else trips.planned()
        assert trips.active is first
        check(trips.writers, stored(first.bootstrap))
        counts = {writer.name: len(writer.acknowledged) for writer in trips.writers}
        print(f"{ROUND_TRIPS} round trips, {counts} records, {trips.lost} lost")
        for site in (first, second):
            site.broker.assert_no_traceback()
    finally:
        for writer in trips.writers:
            writer.stop()
        for site in (first, second):
            site.close()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_copy_over_a_link_with_delay_stalls_and_cuts_equals_the_source(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    source, target = BrokerSite(tmp_path / "source"), BrokerSite(tmp_path / "target")
    writers = three_writers(source.bootstrap, SEED)
    source.link.delay_s = DELAY_S
    try:
        with Admin(source.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        target.ottla("create", "dr", "--from", source.link.bootstrap, "--topics", TOPIC)
        for writer in writers:
            writer.start()
        faults = Counter(disturb(source.link, chance, DELAY_S) for _ in range(FAULTS))
        stop(writers)
        ends = source.ends()
        wait_until(lambda: target.ends() == ends, TIMEOUT_S)
        assert target.data() == source.data()
        out, _ = target.ottla("verify", "dr", "--json")
        assert {json.loads(line)["result"] for line in out.splitlines()} == {"equal"}
        check(writers, stored(target.bootstrap))
        print(f"{dict(faults)}, {sum(map(len, target.data()))} bytes")
        for site in (source, target):
            site.broker.assert_no_traceback()
    finally:
        for writer in writers:
            writer.stop()
        for site in (source, target):
            site.close()

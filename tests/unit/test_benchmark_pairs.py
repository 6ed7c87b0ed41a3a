"""The races that compare two settings: neither may profit from its place, and the page cache is prepared."""

from pathlib import Path

import pytest
from benchmarks import page_cache, paired
from benchmarks.brokers import Broker, start_ottla

MEGABYTE = 1_000_000


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """One that does not run."""
    return Broker("ottla", "127.0.0.1:1", 1, start_ottla, tmp_path / "data")


def test_both_settings_have_equal_places_in_the_order() -> None:
    places: dict[str, list[int]] = {"1": [], "all": []}
    for pair, order in enumerate(paired.ORDERS):
        assert set(order) == set(places)
        for place, acks in enumerate(order):
            places[acks].append(2 * pair + place)
    firsts = [order[0] for order in paired.ORDERS]
    assert firsts.count("1") == firsts.count("all")
    # So a steady drift of the machine adds as much to one as to the other.
    assert sum(places["1"]) == sum(places["all"])


def test_pairs_report_means_and_the_ratio_within_pairs(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def cost(_: object, acks: str, state: str) -> tuple[float, float]:
        order.append(acks)
        pair = (len(order) + 1) // 2  # the machine becomes slower
        return pair, pair * (3.0 if acks == "all" else 1.0)

    monkeypatch.setattr(paired._Pairs, "_cost", cost)
    monkeypatch.setattr(page_cache, "system_ms_per_mb", lambda directory, megabytes: 0.25)
    figures = paired._Pairs(broker, 1000, 1000).run(paired.AS_IT_COMES)
    assert order == [acks for pair in paired.ORDERS for acks in pair]
    assert figures["system ms per MB, bare pwrite, memory as it comes"] == 0.25
    assert figures["user ms per MB, acks=all, memory as it comes"] == 3.5
    assert figures["CPU of acks=all over acks=1, memory as it comes"] == 2.0
    assert paired.LIMITS.keys() & figures.keys() == {"CPU of acks=all over acks=1, memory as it comes"}


def test_memory_that_changes_between_runs_does_not_affect_the_ratio(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []

    def cost(_: object, acks: str, state: str) -> tuple[float, float]:
        runs.append(acks)
        return 0.25, 0.25 if len(runs) < 6 else 2.5  # pages that were used before run out in the middle of a pair

    monkeypatch.setattr(paired._Pairs, "_cost", cost)
    monkeypatch.setattr(page_cache, "system_ms_per_mb", lambda directory, megabytes: 0.25)
    figures = paired._Pairs(broker, 1000, 1000).run(paired.AS_IT_COMES)
    assert figures["CPU of acks=all over acks=1, memory as it comes"] == 1.0
    one, every = (figures[f"MB per broker-CPU-second, acks={acks}, memory as it comes"] for acks in ("1", "all"))
    assert one / every < 1.3  # medians of each setting would differ by 1.7


def test_touching_leaves_no_file(broker: Broker, tmp_path: Path) -> None:
    page_cache.touch(broker, 2)
    assert list(tmp_path.iterdir()) == []


def test_a_bare_write_keeps_its_file(tmp_path: Path) -> None:
    assert page_cache.system_ms_per_mb(tmp_path, 2) >= 0
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size >= 2 * MEGABYTE

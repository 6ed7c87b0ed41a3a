"""A metadata quorum of several nodes: elections, replication, divergence, snapshots, observers, voter changes."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from ottla.cluster.quorum import leader_watch
from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest

from .support import HOST, Quorum, QuorumNode, create, directory_id, outcome, until

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture
def run() -> Run:
    def go(story: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(asyncio.wait_for(story, 60))

    return go


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
def test_three_voters_elect_a_leader_and_all_nodes_publish_what_it_commits(
    tmp_path: Path, run: Run, *, static: bool
) -> None:
    async def story() -> None:
        async with Quorum(tmp_path, observers=1, static=static) as quorum:
            await quorum.create("a", "b")
            await quorum.published("a", "b")
            leader = await quorum.leader()
            images = [node.running.image for node in quorum.nodes.values()]
            assert all(image.features == images[0].features for image in images)
            assert all(node.running.leader is not None for node in quorum.nodes.values())
            assert {node.running.leader[0] for node in quorum.nodes.values() if node.running.leader} == {leader.node_id}
            others = [node for node in quorum.nodes.values() if node is not leader]
            for node in others:
                refused = create(node.running, "c")
                assert isinstance(refused.error, KafkaError)
                assert refused.error.code is ErrorCode.NOT_CONTROLLER

    run(story())


def test_killed_leader_is_replaced_when_its_connections_close(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        quorum = Quorum(tmp_path)
        quorum.timeouts = {"fetch_timeout_ms": 30_000}
        async with quorum:
            await quorum.create("a")
            old = await quorum.leader()
            epoch = old.running.raft.epoch
            await old.kill()
            new = await quorum.leader(after=epoch)
            await quorum.create("b")
            old.start()
            await quorum.published("a", "b")
            assert old.running.leader is not None
            assert old.running.leader[0] == new.node_id
            assert not old.running.is_active_controller

    run(story())


def test_leader_that_stops_hands_over_at_once(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        quorum = Quorum(tmp_path)
        quorum.timeouts = {"fetch_timeout_ms": 30_000}
        async with quorum:
            await quorum.create("a")
            old = await quorum.leader()
            seen: list[bool] = []
            old.running.on_leader_change(lambda: seen.append(old.running.is_active_controller))
            stopped = old.running.quorum.shut_down()
            await outcome(stopped)
            assert seen[0]
            assert not seen[-1]
            refused = create(old.running, "b")
            assert isinstance(refused.error, KafkaError)
            assert refused.error.code is ErrorCode.NOT_CONTROLLER
            await old.stop()
            await quorum.create("b")
            await quorum.published("a", "b")

    run(story())


def test_uncommitted_operation_fails_and_its_records_are_truncated(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with Quorum(tmp_path) as quorum:
            await quorum.create("a")
            await quorum.published("a")
            old = await quorum.leader()
            followers = [node for node in quorum.nodes.values() if node is not old]
            for node in followers:
                await node.kill()
            lost = create(old.running, "lost")
            assert not lost.done
            assert "lost" in old.running._controller.image.topics_by_name
            with pytest.raises(KafkaError) as error:
                await outcome(lost)
            assert error.value.code is ErrorCode.NOT_CONTROLLER
            assert "lost" not in old.running._controller.image.topics_by_name
            end = old.running.log.log_end_offset
            old.running.tick()
            await old.kill()
            for node in followers:
                node.start()
            new = await quorum.leader()
            old.start()
            await until(lambda: old.running.log.log_end_offset == new.running.log.log_end_offset)
            assert new.running.log.log_end_offset < end
            await old.kill()
            old.start()
            await quorum.create("b", "c", "d")
            await quorum.published("a", "b", "c", "d")
            await until(lambda: len({_log_bytes(node) for node in quorum.nodes.values()}) == 1, "the logs differ")
            assert old.running.log.log_end_offset > end
            assert all("lost" not in node.running.image.topics_by_name for node in quorum.nodes.values())

    run(story())


def _log_bytes(node: QuorumNode) -> bytes:
    log = node.running.log
    return bytes(log.read(0, 1 << 20, log.log_end_offset))


def _snapshot(node: QuorumNode) -> None:
    """Write a snapshot, and delete the log before it."""
    shell = node.running
    shell.begin_snapshot()
    for _ in range(5):
        shell.tick()
    end_offset = max(int(path.name[:20]) for path in node.path.glob("*-0/*.checkpoint"))
    shell.log.roll()
    shell.log.delete_records_before(end_offset, "test")
    shell.log.delete_old_segments(0)
    shell.quorum.snapshots_changed()


def test_new_voter_fetches_a_snapshot_in_parts_and_old_voters_are_removed(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        # The bootstrap servers of the first nodes do not name the new one.
        async with Quorum(tmp_path, voters=2) as quorum:
            await quorum.create(*(f"topic-{i}" for i in range(30)))
            leader = await quorum.leader()
            _snapshot(leader)
            await quorum.create("later")
            new = quorum.add(3)
            new.start()
            await quorum.published("topic-0", "topic-29", "later")
            assert new.running.log.log_start_offset > 0
            assert not new.running.raft.is_voter
            await _add_voter(leader, new)
            await until(lambda: new.running.raft.is_voter)
            await outcome(_remove_voter(leader, next(n for n in quorum.nodes.values() if n not in (leader, new))))
            await until(lambda: new.running.raft.voters.ids == {leader.node_id, 3})
            await outcome(_remove_voter(leader, leader))
            await until(lambda: new.running.is_active_controller)
            await quorum.create("last")
            await new.kill()
            new.start()
            await quorum.published("topic-0", "topic-29", "later", "last")

    run(story())


def test_voter_with_a_damaged_snapshot_continues_with_another_voters_snapshot(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with Quorum(tmp_path) as quorum:
            await quorum.create(*(f"topic-{i}" for i in range(10)))
            await quorum.published("topic-9")
            leader = await quorum.leader()
            voter = next(node for node in quorum.nodes.values() if node is not leader)
            _snapshot(voter)
            await quorum.create("later")
            await quorum.published("later")
            await voter.kill()
            (damaged,) = [path for path in voter.path.glob("*-0/*.checkpoint") if int(path.name[:20])]
            damaged.write_bytes(damaged.read_bytes()[:-10])
            with pytest.raises(KafkaError, match=r"copy a \.checkpoint file with at least that offset"):
                voter.start()
            _snapshot(leader)
            newest = max(leader.path.glob("*-0/*.checkpoint"))
            shutil.copy(newest, damaged.parent)
            voter.start()
            await quorum.create("last")
            await quorum.published("topic-0", "topic-9", "later", "last")
            assert voter.running.raft.is_voter
            await leader.kill()
            await quorum.create("without the old leader")

    run(story())


async def _add_voter(leader: QuorumNode, node: QuorumNode) -> None:
    request = AddRaftVoterRequest(
        cluster_id="cluster",
        timeout_ms=5000,
        voter_id=node.node_id,
        voter_directory_id=directory_id(node.node_id),
        listeners=[Listener(name="CONTROLLER", host=HOST, port=node.port)],
    )
    response = await outcome(leader.running.quorum.receive(request, "CONTROLLER"))
    assert (response.error_code, response.error_message) == (0, None)


def _remove_voter(leader: QuorumNode, node: QuorumNode) -> Any:
    request = RemoveRaftVoterRequest(
        cluster_id="cluster", voter_id=node.node_id, voter_directory_id=directory_id(node.node_id)
    )

    def check(response: Any) -> None:
        assert (response.error_code, response.error_message) == (0, None)

    return leader.running.quorum.receive(request, "CONTROLLER").then(check)


def test_static_quorum_is_upgraded_and_survives_a_restart_of_all_nodes(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        quorum = Quorum(tmp_path, static=True)
        async with quorum:
            await quorum.create("a")
            await quorum.published("a")
            leader = await quorum.leader()
            await until(lambda: _reported(leader), "the voters do not report their directories")
            result = await outcome(leader.running.quorum.upgrade(1, validate_only=False))
            assert (result.error, result.message) == (ErrorCode.NONE, None)
            await until(lambda: all(node.running.raft.kraft_version == 1 for node in quorum.nodes.values()))
            again = await outcome(leader.running.quorum.upgrade(0, validate_only=False))
            assert again.error is ErrorCode.INVALID_UPDATE_VERSION
            for node in quorum.nodes.values():
                await node.kill()
            for node in quorum.nodes.values():
                node.start()
            await quorum.create("b")
            await quorum.published("a", "b")
            voters = quorum.nodes[1].running.raft.voters
            assert voters.keys == {node.voter.key for node in quorum.nodes.values()}
            await quorum.nodes[2].stop()
            quorum.nodes[2].start()
            assert quorum.nodes[2].running.raft.is_voter

    run(story())


def _reported(leader: QuorumNode) -> bool:
    state = leader.running.raft._q.state
    voters = getattr(state, "reported_voters", None)
    return voters is not None and all(voter.key.directory_id != bytes(16) for voter in voters)


def test_node_of_another_cluster_is_rejected_with_one_line(
    tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with Quorum(tmp_path) as quorum:
            await quorum.create("a")
            epoch = (await quorum.leader()).running.raft.epoch
            stranger = quorum.add(4)
            stranger.cluster_id = "another"
            stranger.start()
            await until(lambda: "belongs to another cluster than this node (another)" in caplog.text)
            await until(lambda: stranger.failures)
            assert "Most of the controllers belong to another cluster" in str(stranger.failures[0])
            assert stranger.running.image.topics_by_name == {}
            await stranger.kill()
            assert (await quorum.leader()).running.raft.epoch == epoch

    run(story())
    per_place = [r.getMessage() for r in caplog.records if "belongs to another cluster" in r.getMessage()]
    assert len(per_place) == len(set(per_place)) <= 3


def test_node_of_a_running_cluster_does_not_stop_because_of_strangers(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with Quorum(tmp_path) as quorum:
            await quorum.create("a")
            for node in quorum.nodes.values():
                await until(lambda node=node: node.running.leader is not None)  # type: ignore[misc]
                node.running.quorum._strangers_found("Most of the controllers belong to another cluster")
            await quorum.create("b")
            assert not any(node.failures for node in quorum.nodes.values())

    run(story())


def test_node_with_the_id_of_a_voter_but_another_directory_does_not_vote(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with Quorum(tmp_path) as quorum:
            await quorum.create("a")
            leader = await quorum.leader()
            victim = next(node for node in quorum.nodes.values() if node is not leader)
            twin = quorum.add(4)
            twin.node_id = victim.node_id
            twin.directory = bytes([99]) * 16
            twin.start()
            await quorum.published("a")
            assert not twin.running.raft.is_voter
            assert victim.running.raft.is_voter
            await quorum.create("b")
            await quorum.published("b")
            description = leader.running.describe_quorum()
            assert description is not None
            assert len(description.voters) == 3
            assert [each.key.directory_id for each in description.observers] == [twin.directory]

    run(story())


def test_unreadable_vote_of_a_voter_is_an_error(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with Quorum(tmp_path) as quorum:
            await quorum.create("a")
            leader = await quorum.leader()
            await leader.stop()
            (leader.path / "__cluster_metadata-0/quorum-state").write_text("{")
            with pytest.raises(KafkaError, match="quorum-state cannot be read") as error:
                leader.start()
            assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            leader.shell = None

    run(story())


def test_voter_without_a_majority_says_which_nodes_are_missing(
    tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_watch, "FIRST_MS", 100)

    async def story() -> None:
        quorum = Quorum(tmp_path)
        alone = quorum.nodes[1]
        alone.start()
        await until(lambda: "has had no leader" in caplog.text)
        await asyncio.sleep(0.3)
        await alone.kill()
        text = "a majority of the voters " + ", ".join(f"{n} ({HOST}:{quorum.nodes[n].port})" for n in (1, 2, 3))
        assert caplog.text.count(text) == 1
        assert alone.failures == []

    run(story())

"""`ottla connect why` names what real processes lack: the brokers, a lost worker, space for a file."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing.waiting import wait_until
from tests.cli.commands import run_with_pipes
from tests.connect.cluster.workers import BROKER
from tests.connect.rest.worker_process import WorkerProcess
from tests.ottla_process import ForkedOttla, OttlaProcess
from tests.registry_process import RegistryProcess

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("connect-cluster")]
WORDS = ("--listen", "127.0.0.1:0", "-X", "session.timeout.ms=3000", "-X", "heartbeat.interval.ms=300",
         "-X", "offset.flush.interval.ms=200")  # fmt: skip


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OttlaProcess]:
    with ForkedOttla(tmp_path / "broker", BROKER) as running:
        yield running


def why(worker: WorkerProcess, name: str) -> tuple[int, str]:
    done = run_with_pipes("connect", "why", name, "-C", f"http://{worker.host}:{worker.port}")
    return done.code, done.out.decode()


def create(worker: WorkerProcess, name: str, **config: str) -> None:
    given = {key.replace("_", "."): value for key, value in config.items()} | {"value.converter": "StringConverter"}
    assert worker.request("POST", "/connectors", {"name": name, "config": given}).status == 201
    wait_until(lambda: why(worker, name)[0] == 0, 60.0, what=lambda: why(worker, name))


def test_unreachable_brokers_are_named(broker: OttlaProcess, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one\n")
    with WorkerProcess(tmp_path / "worker", "serve", "-b", broker.bootstrap, *WORDS) as worker:
        create(worker, "lines", connector_class="FileStreamSource", file=str(tmp_path / "in.txt"), topic="lines")
        broker.kill()

        def found() -> bool:
            code, text = why(worker, "lines")
            return code == 1 and "does not reach its brokers: " in text and "Check that the brokers run" in text

        wait_until(found, 60.0, what=lambda: why(worker, "lines"))
        broker.start()
        wait_until(lambda: why(worker, "lines")[0] == 0, 60.0, what=lambda: why(worker, "lines"))


def test_a_schema_registry_that_is_down_is_named_until_it_runs(broker: OttlaProcess, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one\n")
    registry = RegistryProcess(tmp_path / "registry", broker.bootstrap)  # its port is reserved, and refuses
    with WorkerProcess(tmp_path / "worker", "serve", "-b", broker.bootstrap, *WORDS) as worker:
        config = {
            "connector.class": "FileStreamSource", "file": str(tmp_path / "in.txt"), "topic": "lines",
            "value.converter": "AvroConverter", "value.converter.schema.registry.url": registry.url,
        }  # fmt: skip
        assert worker.request("PUT", "/connectors/lines/config", config).status == 201

        def found() -> bool:
            code, text = why(worker, "lines")
            named = f"No schema registry answered after 4 attempts: {registry.url}" in text
            return code == 1 and named and "value.converter.schema.registry.url" in text and "lines runs" not in text

        wait_until(found, 60.0, what=lambda: why(worker, "lines"))
        with registry:
            wait_until(lambda: why(worker, "lines")[0] == 0, 90.0, what=lambda: why(worker, "lines"))


def test_a_lost_worker_is_named_while_its_work_waits_for_it(broker: OttlaProcess, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one\n")
    words = ("serve", "-b", broker.bootstrap, *WORDS)
    with WorkerProcess(tmp_path / "a", *words) as first, WorkerProcess(tmp_path / "b", *words) as second:
        for name in ("c0", "c1", "c2", "c3"):
            create(first, name, connector_class="FileStreamSource", file=str(tmp_path / "in.txt"), topic="lines")
        address = f"{second.host}:{second.port}"
        names = [name for name in ("c0", "c1", "c2", "c3") if address in why(first, name)[1]]
        assert names
        second.stop(signal.SIGKILL)
        for name in names:
            code, text = why(first, name)
            assert code == 1
            assert f"The worker {address} does not answer" in text
            assert "scheduled.rebalance.max.delay.ms" in text
            assert f"{name} runs" not in text
        second.start()


def test_a_full_target_is_named(broker: OttlaProcess, tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    with WorkerProcess(tmp_path / "worker", "serve", "-b", broker.bootstrap, *WORDS) as worker:
        create(worker, "fill", connector_class="FileStreamSink", file=str(out), topics="lines")
        create(worker, "pile", connector_class="files-sink", path=str(tmp_path / "files"), topics="lines")
        assert worker.request("PUT", "/connectors/pile/config", {
            "connector.class": "files-sink", "path": str(tmp_path / "files"), "topics": "lines",
            "value.converter": "StringConverter", "flush.size": "2500",
        }).status == 200  # fmt: skip
        resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
        (tmp_path / "in.txt").write_text(("x" * 1000 + "\n") * 3000)
        create_source = {"connector.class": "FileStreamSource", "file": str(tmp_path / "in.txt"), "topic": "lines",
                         "value.converter": "StringConverter"}  # fmt: skip
        assert worker.request("POST", "/connectors", {"name": "in", "config": create_source}).status == 201
        for name, path in (("fill", out), ("pile", tmp_path / "files")):
            wait_until(lambda name=name: "File too large" in why(worker, name)[1], 60.0, what=lambda: worker.log())
            code, text = why(worker, name)
            assert code == 1
            assert str(path) in text
            assert f"`ottla connect restart {name} --tasks --only-failed` starts it again" in text
        resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        done = run_with_pipes(
            "connect", "restart", "fill", "--tasks", "--only-failed", "-C", f"http://{worker.host}:{worker.port}"
        )
        assert done.code == 0
        wait_until(lambda: out.read_text().count("\n") >= 3000, 60.0, what=worker.log)

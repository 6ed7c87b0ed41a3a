"""A metadata shell on a real or simulated disk, with or without a thread for its fsyncs."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ottla.cluster.metadata.log import MetadataShell
from ottla.cluster.metadata.options import MetadataOptions, NodeIdentity
from ottla.cluster.metadata.snapshotting import MetadataLogSettings
from ottla.common.clock import SystemClock
from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.log.files import Files
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.unit.controller.support import Rules, registration

DIRECTORY_ID = bytes(range(16))


class Thread:
    """A thread whose work runs when the test calls `finish_one`, as an fsync waits for the disk."""

    def __init__(self) -> None:
        self.work: list[tuple[Callable[[], None], Completion[None]]] = []

    def run(self, work: Callable[[], None]) -> Completion[None]:
        completion: Completion[None] = Completion()
        self.work.append((work, completion))
        return completion

    def finish_one(self) -> None:
        work, completion = self.work.pop(0)
        try:
            work()
        except (KafkaError, OSError) as error:
            completion.fail(error)
        else:
            completion.complete(None)


def open_shell(
    directory: str,
    *,
    files: Files | None = None,
    settings: MetadataLogSettings | None = None,
    thread: Thread | None = None,
    on_failure: Callable[[KafkaError], None] | None = None,
    seed: int = 0,
    cluster_id: str = "cluster",
) -> MetadataShell:
    return MetadataShell.open(
        directory,
        NodeIdentity(1, cluster_id, DIRECTORY_ID),
        Rules(),
        SystemClock(),
        MetadataOptions(
            settings=settings or MetadataLogSettings(),
            files=files or Files(),
            random=Random(seed),
            run_in_thread=None if thread is None else thread.run,
            on_failure=on_failure,
        ),
    )


def register(shell: MetadataShell, *, incarnation: int = 1, clean: bool = True, cluster_id: str = "cluster") -> int:
    request = registration(1, None, incarnation)
    request.cluster_id = cluster_id
    return shell.register(request, clean_shutdown=clean).broker_epoch


def create(shell: MetadataShell, name: str, partitions: int = 1) -> Completion[CreateTopicsResponse]:
    return shell.create_topics(CreateTopicsRequest(topics=[CreatableTopic(name, partitions, 1)]))

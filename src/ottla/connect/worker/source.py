"""One life of a source task: poll, transform, convert, write, commit. Runs in the task's thread."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

from ottla.connect.api import SourceOffset, SourceTask, SourceTaskContext, TransactionBoundaries
from ottla.connect.config.definition import SettingError
from ottla.connect.records import EncodedBatch, Position, SourceRecord
from ottla.connect.worker.control import PAUSED
from ottla.connect.worker.conversion import Chain, SourceConversion
from ottla.connect.worker.environment import TaskEnvironment
from ottla.connect.worker.offset_store import OffsetStore
from ottla.connect.worker.source_output import AtLeastOnce, ExactlyOnce, Output
from ottla.connect.worker.steps import Step
from ottla.connect.worker.task_settings import ErrorSettings, SourceSettings
from ottla.connect.worker.tolerance import Tolerance
from ottla.connect.worker.topics import TopicCreator, topic_groups
from ottla.connect.worker.transaction_boundaries import RequestedEnds

logger = logging.getLogger("ottla.connect.worker")
_PAUSE_S: Final = 0.5


class SourceLife:
    """A source task from its start to its end or its first error."""

    def __init__(self, environment: TaskEnvironment) -> None:
        self._environment = environment
        self._control = environment.control
        self._settings = SourceSettings.read(environment.connector)
        errors, hide = ErrorSettings.read(environment.connector), environment.secrets.hide
        self._tolerance = Tolerance(environment.task, errors, environment.control, hide=hide)
        self._written = 0
        self._requested = self._requested_ends()

    def _requested_ends(self) -> RequestedEnds | None:
        """Return the ends of transactions that the connector asks for, if it defines them. Raises SettingError."""
        environment = self._environment
        if self._settings.boundary != "connector":
            return None
        found = environment.connector_class.can_define_transaction_boundaries(environment.connector)
        if found is not TransactionBoundaries.SUPPORTED:
            raise SettingError(
                "Invalid value connector for configuration transaction.boundary: this connector does not define "
                "transaction boundaries of its own"
            )
        return RequestedEnds() if environment.worker.exactly_once else None

    def run(self) -> None:
        """Run until the task should stop. Raises the error that ends this life."""
        environment = self._environment
        with ExitStack() as stack:
            chain = Chain(environment.worker, environment.connector)
            stack.callback(chain.close)
            task = environment.connector_class.task_class()
            assert isinstance(task, SourceTask)
            stores = self._stores()
            output = self._output(task, stores[0])
            stack.callback(output.close)
            topics = self._topics(stack)
            self._control.waits_for("The task connects to Kafka.")
            output.start()
            self._control.waits_for("The task reads its source offsets.")
            for store in stores:
                store.refresh()
            stack.callback(task.stop)
            self._control.waits_for("The task connects to its source.")
            task.start(self._context(stores, chain), environment.config)
            self._control.waits_for("")
            environment.reached(Step.STARTED, environment.task)
            self._loop(task, SourceConversion(chain, self._tolerance), output, topics)

    def _loop(self, task: SourceTask, conversion: SourceConversion, output: Output, topics: TopicCreator) -> None:
        control, reached, name = self._control, self._environment.reached, self._environment.task
        convert, show = conversion.convert, self._environment.shows
        was_paused = False
        while not control.stopping:
            if control.paused:
                was_paused = True
                output.tick(now=True)
                if output.is_open:
                    # It would be open for as long as the pause. The next life begins at the last committed offset.
                    logger.info("Aborting the open transaction of %s: the task is paused", name)
                    return
                control.waits_for(PAUSED)
                show(True)
                control.wait_while_paused(_PAUSE_S)
                continue
            if was_paused:
                was_paused = False
                control.waits_for("")
            show(False)
            reached(Step.BEFORE_POLL, name)
            records = task.poll()
            reached(Step.AFTER_POLL, name)
            if records:
                pairs = [(each, convert(each)) for each in records]
                for topic in {data.topic for _, data in pairs if data is not None}:
                    topics.ensure(topic)
                output.write(pairs)
                self._count(sum(map(_size, records)))
            output.tick()
        output.tick(now=True)

    def _count(self, records: int) -> None:
        self._written += records
        self._control.report_facts({"records": self._written})

    def _stores(self) -> list[OffsetStore]:
        """Return the store to write to, and those to read from after it: the connector's own topic, the worker's."""
        environment = self._environment
        clients, topic = environment.clients, environment.worker.offsets_topic
        names = [self._settings.offsets_topic, topic] if self._settings.offsets_topic else [topic]
        return [environment.stores.of(clients, each) for each in dict.fromkeys(names)]

    def _context(self, stores: Sequence[OffsetStore], chain: Chain) -> SourceTaskContext:
        environment = self._environment

        def offset(partition: Position) -> Position | None:
            found = (store.get(environment.task.connector, partition) for store in stores)
            return next((each for each in found if each is not None), None)

        return SourceTaskContext(
            environment.task.connector,
            environment.task.task,
            offset,
            lambda: self._control.stopping or self._control.paused,
            self._control.report_facts,
            None if chain.transformations else (chain.key, chain.value),
            self._requested,
        )

    def _output(self, task: SourceTask, store: OffsetStore) -> Output:
        def commit(rows: Sequence[SourceOffset]) -> None:
            task.commit(rows)

        if self._environment.worker.exactly_once:
            return ExactlyOnce(self._environment, commit, store, self._settings, self._requested)
        return AtLeastOnce(self._environment, commit, store)

    def _topics(self, stack: ExitStack) -> TopicCreator:
        environment = self._environment
        groups = topic_groups(environment.connector) if environment.worker.creates_topics else ()
        admins: list[Any] = []

        def admin() -> Any:
            if not admins:
                admins.append(environment.clients.admin())
                stack.callback(admins[0].close)
            return admins[0]

        return TopicCreator(admin, groups, environment.used_topic)


def _size(record: SourceRecord) -> int:
    return len(record.value) if type(record) is EncodedBatch else 1

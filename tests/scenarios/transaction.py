"""Commands of `transaction_*.txt`: one transactional id `t`, its coordinator's core, and producers with short names.

    init NAME [version=1|2] [timeout=MS] [continue=yes]    send InitProducerId; continue: with its id and epoch
    add NAME TOPIC-PARTITION...            add partitions, as the client (version 1) or the broker (version 2) does
    verify NAME TOPIC-PARTITION...         verify partitions
    commit NAME                            send EndTxn: version 3 or, with version 2, version 5
    abort NAME                             the same
    copy NAME OTHER                        OTHER has the id and epoch of NAME, and does not learn of later ones
    describe                               print the transaction
    advance MS                             let time pass; timers elapse
    markers ERROR|NONE|hold|release        markers fail with this error from now on, or their outcomes wait
    appends ERROR                          appends fail with this error from now on; NONE: they succeed
    epoch N                                restart with a log in which the producer has this epoch
    restart                                the coordinator restarts and loads its log
    level N                                the finalized level of `transaction.version`; it is 2 at the beginning

Each effect is a line: `append` with the record's content, `reply` with the producer's name, `markers`, `allocate`,
`log` with the log line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.common.errors import ErrorCode
from ottla.coordinators.events import Effect, Effects
from ottla.coordinators.transaction import (
    AllocateProducerId,
    Append,
    DescribeTransaction,
    LogLine,
    Reply,
    WriteMarkers,
)
from ottla.coordinators.transaction.metadata import Metadata
from ottla.coordinators.transaction.records import metadata_of, record_of
from ottla.protocol.messages.describe_transactions import TransactionState
from ottla.protocol.messages.end_txn import EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdResponse
from ottla.protocol.transaction_records import TransactionLogValue, decode_record
from tests.simulation.world.transactions import TRANSACTIONAL_ID, Producer, TransactionDriver


class RecordingDriver(TransactionDriver):
    """Keeps the effects since the last look, in their order."""

    def __init__(self) -> None:
        self.effects: list[Effect | ErrorCode] = []
        super().__init__()

    def execute(self, effect: Effect) -> Effects:
        self.effects.append(effect)
        if isinstance(effect, Append) and self.append_error is not ErrorCode.NONE:
            self.effects.append(self.append_error)
        return super().execute(effect)


class TransactionScenario:
    """Runs the commands of one scenario."""

    def __init__(self) -> None:
        self._driver = RecordingDriver()
        self._producers: dict[str, Producer] = {}

    def close(self) -> None:
        """Nothing to close."""

    def run(self, verb: str, arguments: list[str], options: Mapping[str, str]) -> list[str]:
        driver = self._driver
        driver.effects.clear()
        match verb:
            case "advance":
                driver.advance(int(arguments[0]))
            case "markers":
                self._set_markers(arguments[0])
            case "appends":
                driver.append_error = ErrorCode[arguments[0]]
            case "level":
                driver.level = int(arguments[0])
            case "epoch":
                self._set_epoch(int(arguments[0]))
            case "restart":
                driver.restart()
            case "describe":
                driver.send(DescribeTransaction(TRANSACTIONAL_ID), client_id="admin")
            case "copy":
                self._producers[arguments[1]] = self._producers[arguments[0]].twin()
            case _:
                self._request(verb, arguments, options)
        return [line for effect in driver.effects for line in self._lines(effect)]

    def _set_markers(self, what: str) -> None:
        if what == "release":
            self._driver.release()
        elif what == "hold":
            self._driver.holds_markers = True
        else:
            self._driver.holds_markers = False
            self._driver.marker_errors = dict.fromkeys((("a", 0), ("a", 1), ("b", 0)), ErrorCode[what])

    def _set_epoch(self, epoch: int) -> None:
        metadata = self._driver.shard.transactions[TRANSACTIONAL_ID]._replace(producer_epoch=epoch)
        self._driver.log.append(record_of(TRANSACTIONAL_ID, metadata, self._driver.level))
        self._driver.restart()
        for producer in self._producers.values():
            producer.epoch = epoch

    def _request(self, verb: str, arguments: list[str], options: Mapping[str, str]) -> None:
        name, *rows = arguments
        if name not in self._producers:
            self._producers[name] = Producer(self._driver, version=int(options.get("version", 2)))
        producer = self._producers[name]
        producer.timeout_ms = int(options.get("timeout", producer.timeout_ms))
        partitions = [(topic, int(index)) for topic, _, index in (row.rpartition("-") for row in rows)]
        request: object
        match verb:
            case "init":
                request, version = producer.init_request(names_epoch="continue" in options), 5
            case "add":
                request, version = producer.add_request(*partitions), 3
            case "verify":
                request, version = producer.add_request(*partitions, verify=True), 4
            case "commit" | "abort":
                request, version = producer.end_request(commit=verb == "commit"), producer.end_version
            case _:
                raise ValueError(f"unknown command {verb}")
        self._driver.send(request, version, name)

    # -- output ----------------------------------------------------------------------------------------------------

    def _lines(self, effect: Effect | ErrorCode) -> list[str]:
        match effect:
            case LogLine():
                return [f"log: {effect.message % effect.arguments}"]
            case Append():
                return [f"append: {_record(key, value)}" for key, value in effect.records]
            case ErrorCode():
                return [f"append failed: {effect.name}"]
            case AllocateProducerId():
                return ["allocate a producer id"]
            case WriteMarkers():
                kind = "commit" if effect.commit else "abort"
                epochs = f"producer={effect.producer_id}/{effect.producer_epoch} coordinator={effect.coordinator_epoch}"
                return [f"markers: {kind} {_names(effect.partitions)} {epochs} version={effect.transaction_version}"]
            case Reply():
                return [f"reply {effect.call.client_id}: {self._reply(effect)}"]

    def _reply(self, reply: Reply) -> str:
        response: Any = reply.response
        producer = self._producers.get(reply.call.client_id)
        match response:
            case InitProducerIdResponse():
                assert producer is not None
                error = producer.initialized(response)
                identity = f" producer={response.producer_id}/{response.producer_epoch}" if not error else ""
                return f"InitProducerId {error.name}{identity}"
            case EndTxnResponse():
                assert producer is not None
                error = producer.ended(response)
                identity = f" producer={response.producer_id}/{response.producer_epoch}"
                return f"EndTxn {error.name}{identity if response.producer_id >= 0 else ''}"
            case TransactionState():
                names = [(topic.topic, index) for topic in response.topics for index in topic.partitions]
                return (
                    f"{response.transaction_state or ErrorCode(response.error_code).name}"
                    f" producer={response.producer_id}/{response.producer_epoch}"
                    f" partitions={_names(names)}"
                )
        return "AddPartitions " + " ".join(f"{_names([row])}={code.name}" for row, code in response.items())


def _names(partitions: Any) -> str:
    return ",".join(f"{topic}-{index}" for topic, index in sorted(partitions)) or "none"


def _record(key: bytes, value: bytes | None) -> str:
    decoded = decode_record(key, value)
    if decoded is None or not isinstance(decoded[1], TransactionLogValue):
        return f"tombstone of {TRANSACTIONAL_ID}"
    row: Metadata = metadata_of(decoded[1])
    following = f" next={row.next_producer_id}" if row.next_producer_id >= 0 else ""
    identity = f"producer={row.producer_id}/{row.producer_epoch}"
    return f"{row.state.title} {identity} partitions={_names(row.partitions)}{following}"

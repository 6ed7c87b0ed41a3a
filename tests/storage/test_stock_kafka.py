"""The same files: stock dump-log reads our logs, and our log opens the files of a killed stock broker."""

import os
import re
import signal
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.common.ids import TopicPartition
from ottla.log import Files, Log, LogConfig, LogContext, LogDirectory, Opening, open_log
from ottla.log.checkpoints import RECOVERY_POINTS, read_offsets
from ottla.records import BatchProducer, Codec
from tests.peers import kafka
from tests.peers.cache import in_ci, missing_for_jvm
from tests.storage.helpers import START, ManualClock, append, batch, open_at
from tests.storage.test_cleaner import House
from tests.storage.test_log import end, transactional

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("stock-kafka")]


@pytest.fixture(scope="module", autouse=True)
def jvm() -> None:
    missing = missing_for_jvm()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)


def dump(paths: list[Path], *options: str) -> str:
    """Run dump-log, which must find no error."""
    done = kafka.tool("dump-log", *options, "--files", ",".join(map(str, paths)))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    for complaint in ("isvalid: false", "Mismatch", "non-consecutive", "out of order", "timestamp mismatch"):
        assert complaint not in done.stdout, done.stdout[-3000:]
    return done.stdout


def files(log: Log, pattern: str) -> list[Path]:
    return sorted(Path(log.directory).glob(pattern))


def test_dump_log_reads_segments_indices_and_snapshots(tmp_path: Path) -> None:
    log = open_at(str(tmp_path), config=LogConfig(segment_bytes=4000, index_interval_bytes=200))
    for i in range(80):
        codec = list(Codec)[i % 5]
        append(log, batch(b"%d" % i, b"x" * 20, codec=codec, timestamp=START + i), epoch=i // 30)
        append(log, batch(b"p", producer=BatchProducer(3, 1, i)))
    append(log, transactional(0))
    end(log, commit=False)
    log.close()
    text = dump(files(log, "*.log"), "--deep-iteration")
    assert len(re.findall(r"^\| offset: ", text, re.MULTILINE)) == 80 * 3 + 2
    for index in files(log, "*.*index"):
        dump([index])
    text = dump([*files(log, "*.index"), *files(log, "*.timeindex")], "--index-sanity-check")
    assert text.count("passed sanity check") == 2 * len(log.segments)
    assert "firstOffset: 240 lastOffset: 241" in dump(files(log, "*.txnindex"))
    assert re.search(r"producerId: 3 producerEpoch: 1 .*lastSequence: 79", dump(files(log, "*.snapshot")[-1:]))


def test_dump_log_reads_a_compacted_log(tmp_path: Path) -> None:
    house = House(str(tmp_path))
    for i in range(60):
        house.put(b"k%d" % (i % 7), None if i % 5 == 0 else b"%d" % i)
        house.put(b"p", b"x", producer=BatchProducer(1, 0, i))
    assert house.clean()
    house.manager.close()
    text = dump(files(house.log, "*.log"), "--deep-iteration")
    assert "deleteHorizonMs: OptionalLong[" in text
    for index in files(house.log, "*.*index"):
        dump([index])


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a stock broker that was killed while its indexes were preallocated."""
    overrides = {"log.segment.bytes": 1_048_576, "log.index.interval.bytes": 1024, "log.flush.interval.messages": 5}
    with kafka.StockKafka(tmp_path_factory.mktemp("stock"), overrides=overrides) as stock:
        admin = AdminClient({"bootstrap.servers": stock.bootstrap})
        admin.create_topics([NewTopic("plain", 1, 1), NewTopic("txn", 1, 1)])["txn"].result(30)
        producer = Producer({"bootstrap.servers": stock.bootstrap, "enable.idempotence": True, "linger.ms": 5})
        for i in range(2500):
            producer.produce("plain", b"%d" % i + b"x" * 1000, partition=0, timestamp=START + i)
        assert producer.flush(60) == 0
        writer = Producer({"bootstrap.servers": stock.bootstrap, "transactional.id": "x"})
        writer.init_transactions(30)
        for commits in (True, False):
            writer.begin_transaction()
            writer.produce("txn", b"committed" if commits else b"aborted", partition=0)
            writer.flush(30)
            (writer.commit_transaction if commits else writer.abort_transaction)(30)
        # Its first record waits for the marker of the previous transaction, which is written after the client's call.
        writer.begin_transaction()
        writer.produce("txn", b"open", partition=0)
        assert writer.flush(30) == 0
        os.kill(stock.pids[0], signal.SIGKILL)
    return stock.data()


def open_stock(data: Path, topic: str) -> Log:
    tp = TopicPartition(topic, 0)
    point = read_offsets(Files(), str(data), RECOVERY_POINTS).get(tp, 0)
    opening = Opening(recovery_point=point)
    context = LogContext(LogDirectory(str(data), Files()), tp, clock=ManualClock())
    return open_log(context, LogConfig(), opening=opening)


def test_log_of_a_killed_stock_broker_is_opened_completely(killed: Path) -> None:
    assert not (killed / ".kafka_cleanshutdown").exists()
    assert max(path.stat().st_size for path in killed.glob("plain-0/*.index")) == 10 << 20, "nothing is preallocated"
    log = open_stock(killed, "plain")
    assert (log.log_start_offset, log.log_end_offset) == (0, 2500)
    assert len(log.segments) == 3
    assert log.epochs.latest == 0
    assert log.topic_id != bytes(16)
    assert log.offset_for_timestamp(START + 1234, 2500) == (START + 1234, 1234, 0)
    assert [producer.last_offset for producer in log.active_producers()] == [2499]
    assert append(log, batch(b"ours")).first_offset == 2500
    log.close()
    dump(files(log, "*.log"), "--deep-iteration")
    for index in files(log, "*.*index"):
        dump([index])


def test_transactions_of_a_killed_stock_broker_are_known(killed: Path) -> None:
    log = open_stock(killed, "txn")
    assert log.log_end_offset == 5
    assert [aborted[1:3] for aborted in log.aborted_transactions(0, 5)] == [(2, 3)]
    log.high_watermark = 5
    assert log.last_stable_offset == 4
    log.close()

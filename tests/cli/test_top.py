"""`ottla top --once`: rates of a known load, without colours, in 80 columns."""

from __future__ import annotations

import shutil
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from ssl import create_default_context
from typing import Any
from urllib.error import URLError

import pytest

from ottla.clients import Admin, Producer, TopicPartition
from ottla.tools.top import Sample, frame
from ottla.tools.usage import Usage, samples, usage_rows
from tests import deadlines
from tests.clients.support import unique, wait_until
from tests.conftest import RunningBroker
from tests.ottla_process import ForkedOttla
from tests.peers.secured import Certificates

from .conftest import Run


@pytest.mark.both
def test_hot_partition_and_lag_are_shown(ottla: Run, broker: RunningBroker, ours: Admin) -> None:
    name, group = unique("t" * 60), unique("g" * 60)
    ours.create_topic(name, partitions=2, replication_factor=1)
    ours.alter_group_offsets(group, {TopicPartition(name, 0): 0})
    stop = threading.Event()

    def load() -> None:
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            while not stop.is_set():
                for partition in (0, 0, 0, 1):
                    producer.send(name, b"x" * 1000, partition=partition)
                time.sleep(0.02)

    running = deadlines.in_threads([load], "load")
    try:
        shown = ottla("top", "--once", "--interval", "1", "--rows", "50")
        (found,) = ottla("top", "--once", "--json", "--interval", "2", "--rows", "500").objects
    finally:
        stop.set()
        deadlines.results(running, "load")
        ours.delete_topic(name)
    assert shown.code == 0, shown.err
    assert "\x1b" not in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80
    (topic,) = [row for row in found["topics"] if row["topic"] == name]
    assert 20 < topic["records_per_s"] < 250
    assert topic["bytes_per_s"] > 500 * topic["records_per_s"]
    hot = [row for row in found["partitions"] if row["topic"] == name]
    assert [row["partition"] for row in hot] == [0, 1]
    assert 0.65 < hot[0]["share"] < 0.85
    (row,) = [row for row in found["groups"] if row["group"] == group]
    assert row["lag"] > 10


def test_rates_are_never_negative() -> None:
    one = TopicPartition("t", 0)
    before = Sample(0, {one: 10}, {one: 1000}, {one: 1}, {"g": {one: 8}})
    shrunk = Sample(1000, {one: 4}, {one: 100}, {one: 1}, {"g": {one: 9}})
    found = frame(before, shrunk, 5)
    assert (found.records_per_s, found.bytes_per_s, found.partitions) == (0, 0, [])
    assert (found.groups[0]["lag"], found.groups[0]["read_per_s"]) == (0, 1)


@pytest.mark.parametrize("words", [("--interval", "0"), ("--interval", "nan"), ("--rows", "0")])
def test_invalid_options_are_rejected(plain: Run, words: tuple[str, ...]) -> None:
    assert plain("top", "--once", *words).code == 2


def test_samples_are_parsed_with_escapes_and_summed_rows_are_rates() -> None:
    lines = [
        "# HELP ottla_client_produced_bytes_total Bytes",
        'ottla_client_produced_bytes_total{user="a\\"b}",client_id="c\\n\\\\"} 10',
        'ottla_client_fetched_bytes_total{user="a\\"b}",client_id="d"} 5.5',
        'kafka_log_log_size{topic="t",partition="0"} 7',
        "kafka_server_brokertopicmetrics_bytesin_total 99",
    ]
    assert list(samples(lines, "client")) == [(('a"b}', "c\n\\"), "in_per_s", 10), (('a"b}', "d"), "out_per_s", 5.5)]
    assert {key for key, _, _ in samples(lines, "user")} == {('a"b}',)}
    assert list(samples(lines, "topic")) == [(("t",), "stored", 7)]
    before = Usage(0, {("t",): {"in_per_s": 100, "stored": 5}})
    now = Usage(2000, {("t",): {"in_per_s": 300, "stored": 9}, ("new",): {"out_per_s": 1000}})
    assert usage_rows(before, now, "topic", 5) == [
        {"topic": "new", "in_per_s": 0, "out_per_s": 500, "stored": 0},
        {"topic": "t", "in_per_s": 100, "out_per_s": 0, "stored": 9},
    ]
    assert usage_rows(now, before, "topic", 1)[0]["in_per_s"] == 0  # a broker was started again


@pytest.mark.both
def test_broker_without_metrics_is_named_in_one_sentence(ottla: Run) -> None:
    shown = ottla("top", "--by", "user", "--once")
    assert shown.code == 1
    assert "has no metrics endpoint" in shown.err.splitlines()[0]


def test_usage_is_read_from_endpoints_with_the_token(plain: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    scrapes = iter([1_000, 3_000, 4_000])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = self.headers["Authorization"] == "Bearer secret"
            self.send_response(200 if allowed else 401)
            self.end_headers()
            labels = f'user="{"u" * 90}",client_id="{"c" * 90}"'
            if allowed:
                self.wfile.write(f"ottla_client_produced_bytes_total{{{labels}}} {next(scrapes)}\n".encode())

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        running = deadlines.in_threads([server.serve_forever], "endpoint")
        address = f"127.0.0.1:{server.server_address[1]}"
        words = ("top", "--by", "client", "--once", "--interval", "0.1", "--metrics")
        try:
            refused = plain(*words, address)
            monkeypatch.setenv("OTTLA_METRICS_TOKEN", "secret")
            shown = plain(*words, address)
        finally:
            server.shutdown()
            deadlines.results(running, "endpoint")
    assert refused.code == 1
    assert "needs a token" in refused.err
    assert shown.code == 0, shown.err
    assert "ccc…" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80
    assert plain(*words, "nonsense").code == 2
    assert plain("top", "--metrics", address).code == 2
    assert "does not answer" in plain(*words, "127.0.0.1:1").err


def test_usage_is_read_from_endpoints_with_tls(plain: Run, tmp_path: Path) -> None:
    certificates, file = Certificates(tmp_path / "certificates"), tmp_path / "metrics.pem"
    shutil.copy(certificates.server, file)
    process = ForkedOttla(
        tmp_path / "broker",
        {
            "ottla.metrics.listener": "127.0.0.1:0",
            "ottla.metrics.ssl.keystore.location": file,
            "ssl.allow.dn.changes": "true",
        },
    )
    context = create_default_context(cafile=str(certificates.ca))

    def scrape() -> str:
        url = process.log_path.read_text().rpartition("Serving metrics at ")[2].split()[0]
        with urllib.request.urlopen(url, timeout=30, context=context) as response:
            found: str = response.read().decode()
        return found

    def refuses_the_expired_certificate() -> bool:
        try:
            scrape()
        except URLError as error:
            return "expired" in str(error)
        return False

    with process:
        # The endpoint may come after the line that says where the broker is.
        wait_until(lambda: "Serving metrics at " in process.log_path.read_text(), "the endpoint")
        assert "ottla_build_info" in scrape()
        address = process.log_path.read_text().rpartition("Serving metrics at ")[2].split("/metrics")[0]
        words = ("top", "--by", "topic", "--once", "--interval", "0.1", "--metrics", address)
        refused = plain(*words)
        assert refused.code == 1
        assert "not trusted" in refused.err
        shown = plain(*words, "-X", f"ssl.truststore.location={certificates.ca}")
        assert shown.code == 0, shown.err
        assert plain(*words, "-X", "ssl.truststore.location=/nowhere").code == 2
        shutil.copy(certificates.expired, file)
        wait_until(refuses_the_expired_certificate, "the new certificate")
        process.assert_no_traceback()

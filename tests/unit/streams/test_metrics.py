"""The metrics of runs: rows of statuses, the address, and the endpoint in its thread."""

from __future__ import annotations

import logging
import ssl
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError

import pytest
from tools.pages.metrics import markdown

from ottla.metrics.exposition import OPENMETRICS, PROMETHEUS
from ottla.streams import metrics_rows, metrics_server
from ottla.streams.errors import StreamsError
from ottla.streams.metrics_address import TOKEN, MetricsAddress, metrics_address
from ottla.streams.metrics_rows import FAMILIES
from ottla.streams.metrics_server import MetricsServer, render
from ottla.streams.status import Batch, Input, Partition, Phase, Run, Status, Store
from ottla.testing.waiting import wait_until
from tests.peers.secured import Certificates
from tests.unit.network.tls_support import client_context

QUERY = 'pipeline="shop",query="shop.balance"'
STORES = (
    Store("count by user", 3, 400, 0, 0, 0),
    Store("count by user", 2, 100, 0, 0, 0),
    Store("join", 1, 7, 0, 0, 0),
)
STATUS = Status(
    Run("shop", "shop.balance"),
    batch=Batch(4, 9_000, 250, {}, 10, 40.0, 12.5),
    batches=5,
    records=70,
    busy_ms=1_500,
    inputs=(Input.of("orders", [Partition(0, 7, 10), Partition(1, 2, 2)]), Input.of("users", [])),
    watermark_ms=8_000,
    stores=STORES,
    outputs={"balance": 6},
    invalid={"orders": 2},
    late=3,
    busy_since_ms=9_500,
)


def samples(*statuses: Status, now_ms: int = 10_000) -> dict[str, float]:
    lines = b"".join(render(statuses, PROMETHEUS, now_ms)).decode().splitlines()
    found = [line.removeprefix("ottla_stream_").rpartition(" ") for line in lines if not line.startswith("#")]
    assert len({key for key, _, _ in found}) == len(found), "a sample is there twice"
    return {key.replace(QUERY, "Q"): float(value) for key, _, value in found}


def test_samples_of_a_query() -> None:
    assert samples(STATUS) == {
        'state{Q,state="running"}': 1,
        "batches_total{Q}": 5,
        "records_total{Q}": 70,
        "busy_seconds_total{Q}": 1.5,
        "input_records_per_second{Q}": 12.5,
        "processed_records_per_second{Q}": 40,
        "batch_duration_seconds{Q}": 0.25,
        "batch_finished_timestamp_seconds{Q}": 9,
        "batch_running_seconds{Q}": 0.5,
        'lag_records{Q,topic="orders"}': 3,
        'lag_records{Q,topic="users"}': 0,
        'partition_lag_records{Q,topic="orders",partition="0"}': 3,
        'partition_lag_records{Q,topic="orders",partition="1"}': 0,
        "watermark_timestamp_seconds{Q}": 8,
        'state_rows{Q,operator="count by user"}': 5,
        'state_rows{Q,operator="join"}': 1,
        'state_bytes{Q,operator="count by user"}': 500,
        'state_bytes{Q,operator="join"}': 7,
        'output_rows_total{Q,topic="balance"}': 6,
        'invalid_records_total{Q,input="orders"}': 2,
        "late_rows_total{Q}": 3,
    }


def test_query_before_its_first_micro_batch_has_no_rates() -> None:
    found = samples(Status(STATUS.run, "restarting"))
    assert set(found) == {
        'state{Q,state="restarting"}',
        "batches_total{Q}",
        "records_total{Q}",
        "busy_seconds_total{Q}",
        "batch_running_seconds{Q}",
        "late_rows_total{Q}",
    }
    assert found["batch_running_seconds{Q}"] == 0


def test_many_partitions_have_few_samples_and_one_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_rows, "MOST_PARTITIONS", 2)
    given = Input.of("orders", [Partition(number, 0, 1) for number in range(5)])
    found = samples(replace(STATUS, inputs=(given,)))
    assert found['lag_records{Q,topic="orders"}'] == 5
    assert [key for key in found if key.startswith("partition_lag_records")] == [
        f'partition_lag_records{{Q,topic="orders",partition="{number}"}}' for number in (0, 1)
    ]


def test_run_that_does_not_note_the_start_of_batches_has_no_time_of_a_running_one() -> None:
    found = samples(replace(STATUS, run=replace(STATUS.run, notes_batches=False)))
    assert "batch_running_seconds{Q}" not in found


def test_number_of_queries_with_samples_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "MOST_QUERIES", 2)
    server = MetricsServer(MetricsAddress("127.0.0.1", 0))
    try:
        offered: list[tuple[str, Phase]] = [("a", "running"), ("b", "stopped"), ("c", "running"), ("d", "running")]
        for query, phase in (*offered, ("a", "failed")):
            server.offer(Status(Run("shop", query), phase))
        shown = server._latest()
        assert [(each.run.query, each.phase) for each in shown] == [("a", "failed"), ("c", "running")]
    finally:
        server.close()


def test_lines_of_several_queries_follow_their_metric() -> None:
    text = b"".join(render([STATUS, replace(STATUS, run=Run("other", "other"))], OPENMETRICS, 10_000)).decode()
    assert text.count("# TYPE ottla_stream_records counter\n") == 1
    assert f'ottla_stream_records_total{{{QUERY}}} 70\nottla_stream_records_total{{pipeline="other"' in text
    assert text.endswith("# EOF\n")


def test_page_lists_every_metric_of_pipelines() -> None:
    assert markdown(FAMILIES) in Path("docs/metrics.md").read_text()


def test_address_for_other_machines_needs_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN, raising=False)
    assert metrics_address("--metrics", "[::1]:0") == MetricsAddress("::1", 0)
    assert str(metrics_address("--metrics", "localhost:9405")) == "localhost:9405"
    for text in ("0.0.0.0:9405", "10.0.0.1:9405", "driver:9405"):
        with pytest.raises(StreamsError, match=f"open to other machines.*{TOKEN}"):
            metrics_address("--metrics", text)
    with pytest.raises(StreamsError, match="--metrics: '9405' is not of the form HOST:PORT"):
        metrics_address("--metrics", "9405")
    monkeypatch.setenv(TOKEN, "secret")
    address = metrics_address("--metrics", "0.0.0.0:9405")
    assert address.token == "secret"
    assert "secret" not in f"{address!r} {address}"


@contextmanager
def serving(address: MetricsAddress) -> Iterator[MetricsServer]:
    server = MetricsServer(address)
    try:
        yield server
    finally:
        server.close()
    assert not server._thread.is_alive()


def scrape(server: MetricsServer, token: str | None = None, tls: ssl.SSLContext | None = None) -> str:
    wait_until(lambda: server.address is not None)
    assert server.address is not None
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    scheme = "http" if tls is None else "https"
    request = urllib.request.Request(f"{scheme}://127.0.0.1:{server.address[1]}/metrics", headers=headers)
    with urllib.request.urlopen(request, timeout=30, context=tls) as response:
        return str(response.read().decode())


def test_scrape_has_the_latest_statuses_and_needs_the_token() -> None:
    with serving(MetricsAddress("127.0.0.1", 0, "secret")) as server:
        server.offer(STATUS)
        server.offer(replace(STATUS, records=71))
        with pytest.raises(HTTPError, match="401"):
            scrape(server)
        assert f"ottla_stream_records_total{{{QUERY}}} 71\n" in scrape(server, "secret")


def test_scrape_is_encrypted_and_needs_a_certificate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificates, file = Certificates(tmp_path / "certificates"), tmp_path / "metrics.pem"
    file.write_bytes(certificates.server.read_bytes())
    monkeypatch.delenv(TOKEN, raising=False)
    monkeypatch.setenv("OTTLA_METRICS_SSL_KEYSTORE_LOCATION", str(file))
    monkeypatch.setenv("OTTLA_METRICS_SSL_CLIENT_AUTH", "required")
    with pytest.raises(StreamsError, match=r"^metrics: .*\$OTTLA_METRICS_SSL_TRUSTSTORE_LOCATION") as raised:
        metrics_address("metrics", "0.0.0.0:0")
    assert "\n" not in str(raised.value)
    monkeypatch.setenv("OTTLA_METRICS_SSL_TRUSTSTORE_LOCATION", str(certificates.ca))
    monkeypatch.setattr(metrics_server, "WATCH_CERTIFICATE_S", 0.05)
    caplog.set_level(logging.INFO, "ottla")
    with serving(metrics_address("metrics", "127.0.0.1:0")) as server:
        server.offer(STATUS)
        wait_until(lambda: server.address is not None)
        file.write_text("half a file")
        wait_until(lambda: "metrics endpoint stays as it was" in caplog.text)
        assert QUERY in scrape(server, tls=client_context(certificates, "client"))
        for refused in (None, client_context(certificates), client_context(certificates, "other-client")):
            with pytest.raises((OSError, HTTPException)):
                scrape(server, tls=refused)
    assert "Serving metrics at https://127.0.0.1:" in caplog.text


def test_token_that_can_be_read_on_the_network_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(TOKEN, "secret")
    with serving(metrics_address("metrics", "0.0.0.0:0")) as server:
        wait_until(lambda: server.address is not None)
    assert "without encryption: $OTTLA_METRICS_TOKEN can be read" in caplog.text


def test_scrape_that_fails_is_an_error_for_its_client_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(*_: object) -> None:
        raise ValueError("no samples")

    with serving(MetricsAddress("127.0.0.1", 0)) as server:
        monkeypatch.setattr(metrics_server, "add_status", failing)
        server.offer(STATUS)
        with pytest.raises(HTTPError, match="500"):
            scrape(server)
        assert "A request for /metrics failed" in caplog.text


def test_unusable_address_is_one_warning_and_no_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metrics_server, "RETRY_S", 0.01)
    caplog.set_level(logging.DEBUG, "ottla.streams")
    # 192.0.2.0/24 is for documentation: no machine has such an address.
    with serving(MetricsAddress("192.0.2.1", 9405)) as server:
        server.offer(STATUS)
        wait_until(lambda: caplog.text.count("not served at 192.0.2.1:9405") > 2)
    assert [each.levelname for each in caplog.records].count("WARNING") == 1

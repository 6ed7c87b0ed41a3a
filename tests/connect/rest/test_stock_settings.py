"""Every setting of a stock worker is in effect, accepted without an effect and with a reason, or refused."""

from __future__ import annotations

import fnmatch
import re
import subprocess
from pathlib import Path

import pytest

from ottla.clients.options import COMMON_OPTIONS
from ottla.common.failure import Failure
from ottla.connect.cluster.settings import CLUSTER_SETTINGS
from ottla.connect.cluster.topics import config_topic, status_topic
from ottla.connect.herder.overrides import POLICY
from ottla.connect.process import Worker
from ottla.connect.rest.settings import REST_SETTINGS
from ottla.connect.worker.client_settings import ADMIN, CONSUMER, PRODUCER, client_settings
from ottla.connect.worker.settings import WORKER_SETTINGS, WorkerSettings
from ottla.connect.worker.stock_settings import REFUSED, WITHOUT_EFFECT
from ottla.web.listeners import TLS_SETTINGS
from tests.peers.kafka import java

PAGE = Path(__file__).resolve().parents[3] / "docs" / "connect.md"
CONVERTER_VERSIONS = {f"{each}.converter.plugin.version" for each in ("key", "value", "header")}
STORAGE = {"config.storage.topic", "config.storage.replication.factor", "status.storage.topic",
           "status.storage.partitions", "status.storage.replication.factor"}  # fmt: skip
IN_EFFECT = (
    {each.name for defined in (WORKER_SETTINGS, CLUSTER_SETTINGS, REST_SETTINGS) for each in defined}
    | {each.name for each in COMMON_OPTIONS}
    | {*TLS_SETTINGS, POLICY}
    | CONVERTER_VERSIONS
    | STORAGE
)


def stock_settings() -> set[str]:
    """Return the names of all settings of stock's distributed and standalone workers."""
    main = "org.apache.kafka.connect.runtime.distributed.DistributedConfig"
    done = subprocess.run(java(main), check=True, capture_output=True, text=True, timeout=120)
    names = set(re.findall(r'href="#connectconfigs_([a-z0-9._]+)"', done.stdout))
    return {*names, "offset.storage.file.filename"}  # StandaloneConfig has this one more


@pytest.mark.jvm
def test_every_setting_of_stock_is_known() -> None:
    names = stock_settings()
    assert len(names) > 130
    assert not names - IN_EFFECT - WITHOUT_EFFECT.keys() - REFUSED.keys()
    assert not {*WITHOUT_EFFECT, *REFUSED} - names, "these settings do not exist"


def test_tables_do_not_overlap_and_are_documented() -> None:
    assert not WITHOUT_EFFECT.keys() & REFUSED.keys()
    assert not {*WITHOUT_EFFECT, *REFUSED} & {each.name for each in COMMON_OPTIONS}
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    patterns = [each for line in rows for each in re.findall(r"`([a-z.*]+)`", line.split("|")[1])]
    patterns += [f"sasl.oauthbearer{each}" for each in patterns if each.startswith(".")]
    for name in (*WITHOUT_EFFECT, *REFUSED, *CONVERTER_VERSIONS - {"value.converter.plugin.version"}):
        found = [each for each in patterns if fnmatch.fnmatchcase(name, each)]
        assert found or name.startswith("header."), f"docs/connect.md does not have {name}"


@pytest.mark.parametrize("prefix", ["", "producer.", "listeners.https."])
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_setting_that_must_not_be_ignored_is_refused_with_a_sentence(name: str, prefix: str) -> None:
    with pytest.raises(Failure) as caught:
        Worker({prefix + name: "com.example.Own"})
    assert caught.value.problem == f"{prefix}{name} is com.example.Own: {REFUSED[name]}"


def test_kafkas_own_classes_are_accepted() -> None:
    own = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    Worker({"sasl.login.callback.handler.class": own, "sasl.login.class": ""})


def test_settings_without_effect_are_logged_and_reach_no_client(caplog: pytest.LogCaptureFixture) -> None:
    given = {prefix + name: "1" for name in WITHOUT_EFFECT for prefix in ("", "consumer.")}
    with caplog.at_level("INFO", logger="ottla.connect.worker"):
        Worker(given)
    for name, reason in WITHOUT_EFFECT.items():
        assert f"{name} has no effect: {reason}" in caplog.messages
    made = client_settings(WorkerSettings.read(given), {}, "consumer", {}, COMMON_OPTIONS)
    assert set(made) == {"bootstrap.servers"}


@pytest.mark.parametrize("client", [PRODUCER, CONSUMER, ADMIN])
def test_setting_of_client_metrics_reaches_each_client(client: str) -> None:
    worker = WorkerSettings.read({"enable.metrics.push": "false"})
    assert client_settings(worker, {}, client, {}, COMMON_OPTIONS)["enable.metrics.push"] == "false"
    connector = {f"{client}.override.enable.metrics.push": "true"}
    assert client_settings(worker, connector, client, {}, COMMON_OPTIONS)["enable.metrics.push"] == "true"


def test_another_version_of_a_converter_is_refused() -> None:
    Worker({"key.converter": "JsonConverter", "key.converter.plugin.version": "[1.0,)"})
    with pytest.raises(Failure, match=r"key\.converter\.plugin\.version: .*99\.0"):
        Worker({"key.converter": "JsonConverter", "key.converter.plugin.version": "99.0"})


def test_topics_of_configurations_and_states_have_stocks_settings() -> None:
    given = {"config.storage.topic": "c", "config.storage.replication.factor": "2", "status.storage.topic": "s",
             "status.storage.partitions": "3", "status.storage.replication.factor": "1"}  # fmt: skip
    assert (config_topic(given).name, config_topic(given).replication_factor) == ("c", 2)
    assert (status_topic(given).partitions, status_topic(given).replication_factor) == (3, 1)

"""Secrets in the options of a Spark query are in no repr and in no error."""

from __future__ import annotations

import pytest

from ottla.spark.options import OptionError, read_sink_options, read_source_options
from ottla.spark.table_ends import TablePlace
from ottla.spark.write_plan import Plan
from ottla.streams.settings import Settings

SECRET = "Xq7-never-shown"
CLIENT = {
    "bootstrap.servers": "127.0.0.1:9092",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "ann",
    "sasl.password": SECRET,
}
OPTIONS = {f"kafka.{name}": value for name, value in CLIENT.items()}


def test_no_repr_shows_a_secret() -> None:
    objects = [
        read_source_options({**OPTIONS, "subscribe": "orders"}),
        read_sink_options({**OPTIONS, "topic": "orders"}),
        Plan(CLIENT, "orders"),
        TablePlace("orders", CLIENT, "read_committed"),
        Settings(CLIENT, "checkpoints"),
    ]
    assert [each for each in objects if SECRET in repr(each)] == []


@pytest.mark.parametrize(
    "given",
    [
        {"kafka.sasl.passwort": SECRET},
        {"kafka.sasl.password": SECRET, "kafka.ssl.provider": SECRET, "kafka.sasl.login.class": "x"},
        {"kafka.sasl.mechanism": "GSSAPI"},
    ],
)
def test_no_error_shows_a_secret(given: dict[str, str]) -> None:
    with pytest.raises(OptionError) as caught:
        read_source_options({**OPTIONS, "subscribe": "orders", **given})
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value)

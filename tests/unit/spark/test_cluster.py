"""The driver's connection to the cluster."""

from __future__ import annotations

import threading

import pytest

from ottla.clients.errors import ConfigurationError
from ottla.spark.cluster import SourceCluster
from ottla.spark.options import read_source_options


def test_invalid_client_settings_leave_no_thread() -> None:
    options = read_source_options(
        {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "kafka.security.protocol": "SSL",
         "kafka.ssl.ca.location": "/no/such/file"}
    )  # fmt: skip
    before = set(threading.enumerate())
    with pytest.raises(ConfigurationError, match="ssl"):
        SourceCluster(options)
    assert set(threading.enumerate()) <= before

"""The driver's questions: what cannot be asked leaves nothing behind."""

from __future__ import annotations

import threading

import pytest

from ottla.clients.errors import ConfigurationError
from ottla.spark.cluster import SourceCluster
from ottla.spark.options import read_source_options


def test_settings_that_no_client_can_be_made_of_leave_no_thread() -> None:
    options = read_source_options(
        {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "kafka.security.protocol": "SSL",
         "kafka.ssl.ca.location": "/no/such/file"}
    )  # fmt: skip
    before = set(threading.enumerate())
    with pytest.raises(ConfigurationError, match="ssl"):
        SourceCluster(options)
    assert set(threading.enumerate()) <= before

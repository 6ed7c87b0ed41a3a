"""A real S3 server for the tests of one process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connect.files.servers import S3Server, s3_server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    directory: Path = tmp_path_factory.mktemp("s3")
    with s3_server(directory) as server:
        yield server

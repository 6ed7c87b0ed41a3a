"""A schema registry for the tests of converters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.registry_process import RegistryProcess


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from tests.ottla_process import ForkedOttla

    directory = tmp_path_factory.mktemp("registry")
    with ForkedOttla(directory / "broker") as broker:
        node = RegistryProcess(directory / "node", broker.bootstrap)
        node.start()
        try:
            yield node.url
        finally:
            node.stop()

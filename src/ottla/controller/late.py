"""Operations that the start of a node does not need: imported at their first use, which saves 7 ms of CPU."""

from ottla.common.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)

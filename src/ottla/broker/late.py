"""Parts of a broker that few configurations need, imported at their first use."""

from ottla.common.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)

"""Modules that the pytest plugin imports at their first use (150 ms), since pytest loads the plugin in every run."""

from ottla.common.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)

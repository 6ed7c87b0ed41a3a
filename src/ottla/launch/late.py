"""Modules that only one way of `ottla up` needs: imported at their first use.

`server` is the broker (50 ms of CPU), which the parent of a cluster does not need; `supervise` is that parent (5 ms).
"""

from ottla.common.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)

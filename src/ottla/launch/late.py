"""Modules that only one way of `ottla up` needs: imported at their first use.

`server` is the broker (150 ms of CPU), which the parent of a cluster does not need; `supervise` is that parent (5 ms).
"""

from typing import TYPE_CHECKING

from ottla.common.lazy import LazyModule

if TYPE_CHECKING:
    from ottla.broker import server
    from ottla.launch import supervise
else:
    server = LazyModule("ottla.broker.server")
    supervise = LazyModule("ottla.launch.supervise")

__all__ = ["server", "supervise"]

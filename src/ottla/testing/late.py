"""What the pytest plugin imports at its first use (150 ms): pytest loads the plugin in every run."""

from typing import TYPE_CHECKING

from ottla.common.lazy import LazyModule

if TYPE_CHECKING:
    from ottla import config
    from ottla.config import broker as broker_config
    from ottla.testing import cluster, process, running, unclosed, view
else:
    broker_config = LazyModule("ottla.config.broker")
    cluster = LazyModule("ottla.testing.cluster")
    config = LazyModule("ottla.config")
    process = LazyModule("ottla.testing.process")
    running = LazyModule("ottla.testing.running")
    unclosed = LazyModule("ottla.testing.unclosed")
    view = LazyModule("ottla.testing.view")

__all__ = ["broker_config", "cluster", "config", "process", "running", "unclosed", "view"]

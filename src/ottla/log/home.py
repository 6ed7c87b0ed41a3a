"""The log directory that logs live in, as one of its logs sees it: a path, the seam to the disk, online or not."""

import logging
from collections.abc import Callable

from ottla.common.rate_limit import RateLimitedLog
from ottla.common.shortage import is_shortage
from ottla.log.files import Files

logger = logging.getLogger(__name__)
# A shortage meets every request that needs a file.
_shortages = RateLimitedLog(logger, lines=1, period_s=10.0)


class Home:
    """The log directory that a log lives in. `on_failure` is called once, on the thread that met the error."""

    def __init__(self, path: str, files: Files, on_failure: Callable[["Home", OSError], None] | None = None) -> None:
        self.path = path
        self.files = files
        self.online = True
        self._on_failure = on_failure

    def fail(self, error: OSError) -> None:
        """Take the directory offline, unless the error is a shortage of descriptors or memory."""
        if is_shortage(error):
            _shortages.warning("An operation in log directory %s failed and can be retried: %s", self.path, error)
        else:
            self.take_offline(error)

    def take_offline(self, error: OSError) -> None:
        """Take the directory offline, whatever the error is: its files are not what they should be."""
        if self.online:
            self.online = False
            logger.error("Stopping serving logs in dir %s: %s", self.path, error)
            if self._on_failure is not None:
                self._on_failure(self, error)

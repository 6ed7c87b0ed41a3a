"""The log directory that logs live in, as one of its logs sees it: a path, the seam to the disk, online or not."""

import logging
from collections.abc import Callable

from ottla.log.files import Files

logger = logging.getLogger(__name__)


class Home:
    """The log directory that a log lives in. `on_failure` is called once, on the thread that met the error."""

    def __init__(self, path: str, files: Files, on_failure: Callable[["Home", OSError], None] | None = None) -> None:
        self.path = path
        self.files = files
        self.online = True
        self._on_failure = on_failure

    def fail(self, error: OSError) -> None:
        """Take the directory offline."""
        if self.online:
            self.online = False
            logger.error("Log directory %s is offline now: %s", self.path, error)
            if self._on_failure is not None:
                self._on_failure(self, error)

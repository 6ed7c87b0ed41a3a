"""Connectors in processes that are forked: see tests/forked.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO, cast

from ottla.testing.connect import ConnectProcess
from tests import forked


class ForkedConnect(ConnectProcess):
    """One connector in a process that starts with little CPU time."""

    _input: IO[bytes]

    def _start(self, command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        theirs, ours = os.pipe()
        self._input = os.fdopen(ours, "wb")
        with os.fdopen(theirs, "rb") as stdin:
            process = forked.start(command, log, log, Path.cwd(), [each for each in sys.path if each], stdin)
        process.stdin = self._input
        return cast("subprocess.Popen[bytes]", process)

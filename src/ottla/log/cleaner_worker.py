"""The cleaner's worker process: reads a `CleanJob` as JSON from standard input, writes a `CleanResult` to its output.

It dies with the broker that started it and runs at low CPU priority.
"""

import ctypes
import os
import signal
import sys

from ottla.log.compaction import CleanJob, clean
from ottla.log.files import Files

_PR_SET_PDEATHSIG = 1
_NICENESS = 5


def main() -> None:
    """Run one job."""
    parent = int(sys.argv[1])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the broker handles Ctrl-C
    os.nice(_NICENESS)
    result = clean(CleanJob.from_json(sys.stdin.read()), Files())
    sys.stdout.write(result.to_json())


if __name__ == "__main__":
    main()

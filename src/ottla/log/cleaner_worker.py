"""The cleaner's worker process: one `CleanJob` as JSON on standard input, its `CleanResult` on standard output.

It dies with the broker that started it, and takes the processor only when others leave it.
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
    """Do one job."""
    parent = int(sys.argv[1])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the broker's to handle
    os.nice(_NICENESS)
    result = clean(CleanJob.from_json(sys.stdin.read()), Files())
    sys.stdout.write(result.to_json())


if __name__ == "__main__":
    main()

"""A program that prints what it inherited as JSON, and ends as its first argument says."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

FIELDS = ("Umask", "Uid", "Groups", "Threads", "SigBlk", "SigIgn", "SigCgt", "Cpus_allowed_list")


def main() -> int:
    """Print the report; exit with a code, by an error, or wait for a signal."""
    status = Path("/proc/self/status").read_text().splitlines()
    report = {
        "arguments": sys.argv,
        "path": sys.path,
        "directory": str(Path.cwd()),
        "environment": dict(os.environ),
        "descriptors": sorted(name for name in os.listdir("/proc/self/fd") if int(name) <= 2),
        "open": len(os.listdir("/proc/self/fd")),
        "input": os.read(0, 10).decode(),
        "limits": [resource.getrlimit(each) for each in range(resource.RLIMIT_NPROC)],
        "group": os.getpgrp(),
        "session": os.getsid(0),
        "interrupt": str(signal.getsignal(signal.SIGINT)),
        "streams": [str(stream.encoding) + stream.errors for stream in (sys.stdout, sys.stderr)],
        "status": [line for line in status if line.startswith(FIELDS)],
        "name": __name__,
    }
    sys.stderr.write("an error\n")
    sys.stdout.write(json.dumps(report) + "\n")  # unbuffered: the test reads it while the program runs
    if sys.argv[1] == "wait":
        time.sleep(60)
    if sys.argv[1] == "fail":
        raise ValueError("it failed")
    return int(sys.argv[1])


if __name__ == "__main__":
    sys.exit(main())

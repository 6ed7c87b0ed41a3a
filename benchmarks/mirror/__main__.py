"""Runs the parts; see the package."""

from __future__ import annotations

import argparse
import sys

from tests.peers.cache import missing_for_connect

from benchmarks import mirror
from benchmarks.mirror import catch_up, latency, race


def main() -> int:
    """Run the parts that the options select."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m benchmarks.mirror", description=mirror.__doc__, formatter_class=form)
    parser.add_argument("--only", choices=("race", "catch-up", "latency"), action="append", help="default: all parts")
    parser.add_argument("--megabytes", type=int, default=1000, help="race: records of the catch-up")
    parser.add_argument("--rate", type=float, default=10.0, help="race: MB per second")
    parser.add_argument("--seconds", type=float, default=60.0, help="race: time at this rate")
    parser.add_argument("--catch-up-gigabytes", type=float, default=0.5, help="catch-up: records of the source")
    parser.add_argument("--catch-up-rounds", type=int, default=3, help="catch-up: copies, each beside the line")
    parser.add_argument("--catch-up-round-trip-ms", type=float, default=0.0, help="catch-up: delay of the line")
    parser.add_argument("--catch-up-line", type=float, default=float("inf"), help="catch-up: MB per second of the line")
    parser.add_argument("--catch-up-fetchers", type=int, default=-1, help="catch-up: num.replica.fetchers")
    parser.add_argument("--latency-rounds", type=int, default=5, help="latency: pairs with and without a mirror")
    parser.add_argument("--latency-seconds", type=float, default=5.0, help="latency: time of each half of a pair")
    options = parser.parse_args()
    parts = options.only or ["catch-up", "latency", "race"]
    if "catch-up" in parts:
        limits = catch_up.Limits(options.catch_up_round_trip_ms, options.catch_up_line)
        catch_up.run(options.catch_up_gigabytes, options.catch_up_rounds, limits, options.catch_up_fetchers)
    if "latency" in parts:
        latency.run(options.latency_rounds, options.latency_seconds)
    if "race" in parts:
        missing = missing_for_connect()
        if missing is not None:
            print(missing, file=sys.stderr)
            return 1
        race.run(options.megabytes, options.rate, options.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())

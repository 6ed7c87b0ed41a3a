"""Figures of mirrors: python -m benchmarks.mirror [--only PART]

`race.py` races MirrorMaker 2, `catch_up.py` compares a catch-up with the line, and `latency.py` measures Produce at a
source with and without a mirror. `load.py` has the records. Nothing here is a test: figures depend on the
machine, ratios less.
"""

"""Hours of light load on three brokers with kills: is anything lost, and does anything grow?

`make soak MINUTES=120`, or `python -m tests.soak --minutes 120 --pipeline`. Reading order: `ledger` (which records were
written and read), `clients` (the load, a process), `processes` (what runs, and its kills), `measures` (samples of the
processes), `growth` (the judgement), `drawing` (the picture), `__main__` (the run). docs/soak.md has the results.
"""

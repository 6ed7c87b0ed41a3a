"""Transactions on one node: the coordinator's runtime, producer ids, and what partitions ask and do for transactions.

Reading order: `producer_ids`, `runtime` (the coordinator), `verification` (the first batch), `markers` (the end).
"""

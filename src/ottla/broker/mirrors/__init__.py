"""Mirrors: copies of another cluster's topics, with equal offsets. Decision 35, KIP-1279.

Read `mirrors.py` first: a `Mirror` for each one in the metadata. `mirror.py` gives the leaders of this node their place
in the source, and on the active controller creates the topics. `source.py` has the connections, `groups.py` copies the
committed offsets. `partitions/replication/mirrored.py` is the copy of one partition.
"""

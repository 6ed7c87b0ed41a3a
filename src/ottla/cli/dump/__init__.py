"""The files of a log as rows: what `ottla log dump` prints. Reads only, in bounded memory, and needs no broker.

Reading order: rows (what a row is), segment (batches and records), meaning (the cluster's own records in words),
indices, small_files (checkpoints, producer snapshots and the like), files (which file is what, and in which order),
printing (rows for people).
"""

"""The files of a log as rows: batches, records, index entries, and damage. Read-only, in bounded memory, no broker.

Reading order: rows, segment (batches and records), record_text (the cluster's own records as fields), indices,
small_files (checkpoints, producer snapshots and others), files (which file is of which kind, and in which order), text
(rows as lines, or as fields for JSON).
"""

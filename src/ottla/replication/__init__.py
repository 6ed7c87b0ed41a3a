"""How a partition is replicated: the decisions of its leader and of its followers. KIP-101, 279, 497, 841, 903, 966.

A core: it reads no log, clock or socket, and draws no random numbers. Offsets and the time are arguments; the caller
appends, truncates and sends.

- `leader`: what the leader knows of its followers, the high watermark, and the in-sync replicas (ISR). The caller
  reports each fetch of a follower with `on_fetch`, calls `check_lag` regularly, sends the proposals that both return as
  AlterPartition, and reports the answer with `on_answer`. After each of them and after each append it asks for the
  `high_watermark`.
- `follower`: where a follower fetches, and what it does with an answer. It truncates to the end of an epoch that the
  leader names, never to its high watermark, which may be behind records that were acknowledged.
- `session`: the follower's side of an incremental fetch session (KIP-227), at a cost of the changed partitions only.

Invariants: the high watermark of a leader never moves backwards. Each record below it is in the log of each replica of
the maximal ISR: the committed ISR, and a proposed ISR that may be committed already.
"""

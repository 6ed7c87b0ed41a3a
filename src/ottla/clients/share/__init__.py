"""The share consumer (KIP-932): many consumers share the records of a partition, like a queue.

Reading order: acknowledgements, settings, heartbeats, session: the values and the requests; buffer: acquired records
that no poll has returned yet. core joins them without I/O; the membership is the consumer's (HeartbeatMembership).
interface, blocking and asynchronous are the public classes on the consumer's effect runner.
"""

from ottla.clients.share.acknowledgements import AcknowledgeType
from ottla.clients.share.asynchronous import AsyncShareConsumer
from ottla.clients.share.blocking import ShareConsumer

__all__ = ["AcknowledgeType", "AsyncShareConsumer", "ShareConsumer"]

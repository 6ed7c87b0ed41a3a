"""The share consumer (KIP-932): many consumers share the records of a partition, like a queue.

Reading order: acknowledgements, settings, heartbeats, session: the values and the requests; buffer: acquired records
that no poll has returned yet; held: those that a poll has returned. core joins them without I/O; the membership is the
consumer's (HeartbeatMembership). interface, blocking and asynchronous are the public classes on the consumer's effect
runner.
"""

from ottla.common.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)

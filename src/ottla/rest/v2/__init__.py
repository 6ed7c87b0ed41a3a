"""Confluent's API v2: topics and partitions, produce, consumer instances.

Read `media_types` (formats and content negotiation), `routes`, then `topics`, `formats` and `produce`, then `instances`
(consumer instances), `reading` (records as JSON) and `consumers` (their resources).
"""

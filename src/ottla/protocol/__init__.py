"""Kafka's wire: every message declared once, in `messages/`, one file per API.

Reading order: `message` (how a declaration looks and what it gives), any file of `messages/`, `frames` (headers and
sizes), `registry` (messages by API key), `compiler` (how declarations become fast functions), `wire` (limits, errors).
What Kafka stores rather than sends: `metadata_records`, `group_records`, `transaction_records`, `control_records`,
`consumer_protocol`.
"""

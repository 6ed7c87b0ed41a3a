"""The Kafka protocol. Every message is declared once, in `messages/`, with one file per API.

Reading order: `message` (declarations), any file of `messages/`, `frames` (headers and sizes), `registry` (messages by
API key), `compiler` (the functions of a declaration), `_shapes`, `_decoding`, `_encoding` (codecs), `wire` (limits and
errors). Records that Kafka stores rather than sends: `metadata_records`, `group_records`, `transaction_records`,
`share_records`, `control_records`, `consumer_protocol`.
"""

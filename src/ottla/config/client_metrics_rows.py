"""Settings of a subscription to client metrics (KIP-714), one row each, as in `broker_rows.py`."""

from ottla.config.server_setting import INT, LIST, MEDIUM, WORKS, ServerSetting

METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"

ROWS = (
    ServerSetting(METRICS, LIST, (),
        "Prefixes of the names of the metrics that clients push; `*` for all metrics, none if empty.",
        MEDIUM, WORKS),
    ServerSetting(INTERVAL_MS, INT, 300_000,
        "Interval at which clients push, from 100 to 3600000.",
        MEDIUM, WORKS),
    ServerSetting(MATCH, LIST, (),
        "Selectors of clients, as `NAME=REGEX`; all must match the whole value. The names are client_id, "
        "client_instance_id, client_software_name, client_software_version, client_source_address and "
        "client_source_port.",
        MEDIUM, WORKS),
)  # fmt: skip

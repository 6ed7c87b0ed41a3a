"""The settings of brokers, topics, groups and client metrics, and `parse_value`, which turns text into a typed value.

`server_setting.py` defines the columns of a row, `values.py` the syntax of values, and `limits.py` the limits.
"""

from ottla.common.errors import ErrorCode, KafkaError
from ottla.config import (
    broker_rows,
    client_metrics_rows,
    group_rows,
    metrics_rows,
    mirror_rows,
    registry_rows,
    security_rows,
    topic_rows,
)
from ottla.config.limits import invalid, limit_violation
from ottla.config.server_setting import ServerSetting
from ottla.config.values import Value, convert

BROKER_SETTINGS = {
    setting.name: setting
    for setting in (*broker_rows.ROWS, *security_rows.ROWS, *registry_rows.ROWS, *metrics_rows.ROWS)
}
TOPIC_SETTINGS = {setting.name: setting for setting in topic_rows.ROWS}
GROUP_SETTINGS = {setting.name: setting for setting in group_rows.ROWS}
CLIENT_METRICS_SETTINGS = {setting.name: setting for setting in client_metrics_rows.ROWS}
MIRROR_SETTINGS = {setting.name: setting for setting in mirror_rows.ROWS}


def parse_value(setting: ServerSetting, text: str) -> Value:
    """Return the typed value of `text`; raises KafkaError INVALID_CONFIG with Kafka's message."""
    try:
        value = convert(setting.kind, text)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, invalid(setting.name, text, str(error))) from error
    problem = limit_violation(setting, value)
    if problem:
        raise KafkaError(ErrorCode.INVALID_CONFIG, problem)
    # A repeated item counts once, as in Kafka (KIP-1161).
    return tuple(dict.fromkeys(value)) if isinstance(value, tuple) else value

"""The settings of a single group, e.g. `consumer.session.timeout.ms`."""

from __future__ import annotations

from collections.abc import Mapping


def group_setting(overrides: Mapping[str, str], name: str, default: int) -> int:
    """A setting of one group, e.g. `consumer.session.timeout.ms`: its own value, otherwise the broker's `default`."""
    value = overrides.get(name)
    return default if value is None else int(value)

"""The file of profiles: `~/.config/ottla/config.toml` (or below $XDG_CONFIG_HOME), one table of client settings each.

    current = "staging"

    [profiles.staging]
    "bootstrap.servers" = "broker1:9092,broker2:9092"

It may hold passwords: it is written with mode 0600, and whole or not at all.
"""

import os
from typing import Any

from ottla.cli.terminal import Failure


def path() -> str:
    """Where the file is, or would be."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 - no pathlib at start
    return f"{home}/ottla/config.toml"


def load() -> dict[str, Any]:
    """The file as it is; empty if there is none. Raises Failure if it cannot be read."""
    try:
        with open(path(), "rb") as file:
            import tomllib

            document = tomllib.load(file)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Failure(f"{path()} cannot be read: {error.strerror}", exit_code=2) from error
    except ValueError as error:
        raise Failure(f"{path()} is not valid TOML: {error}", exit_code=2) from error
    profiles = document.get("profiles", {})
    if not isinstance(profiles, dict) or not all(isinstance(each, dict) for each in profiles.values()):
        raise Failure(f"{path()}: profiles are tables, as in [profiles.staging]", exit_code=2)
    return document


def settings_of(name: str) -> dict[str, object]:
    """The client settings of a profile. Raises Failure if there is none of that name."""
    found = load().get("profiles", {})
    if name not in found:
        from ottla.cli.parsing import nearest

        near = nearest(name, found)
        advice = f"Did you mean {near}?" if near else "`ottla profile list` shows the profiles that there are."
        raise Failure(f"there is no profile {name!r}", advice, exit_code=2)
    return flat(found[name])


def settings_in_use() -> dict[str, object]:
    """The settings of the profile in use; empty if none is."""
    current = load().get("current")
    return settings_of(current) if current else {}


def flat(table: dict[str, Any], prefix: str = "") -> dict[str, object]:
    """Settings by Kafka's names: a table within a table is a name with dots."""
    settings: dict[str, object] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            settings.update(flat(value, f"{prefix}{name}."))
        else:
            settings[f"{prefix}{name}"] = str(value).lower() if isinstance(value, bool) else value
    return settings

"""Prints docs/configuration.md: `python -m tools.pages.configuration`."""

import sys
from collections.abc import Iterable

from ottla.config.defaults import OTTLA_DEFAULTS
from ottla.config.server_setting import ServerSetting
from ottla.config.settings import (
    BROKER_SETTINGS,
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    MIRROR_SETTINGS,
    TOPIC_SETTINGS,
)
from ottla.config.synonyms import GROUP_SYNONYMS, TOPIC_SYNONYMS
from ottla.config.unsupported import reason

_INTRODUCTION = """\
# Settings

Names, types, defaults and limits are as in Kafka 4.3. This page is generated from the rows in `src/ottla/config/`.

- **works**: it does what Kafka's documentation says.
- **reported**: it is accepted and has no effect; a value other than the default causes a warning in the log.
- **refused**: it is not supported; a value other than the default is an error.

A broker reads its settings from `ottla up --config server.properties` and `-X name=value`. Values that were set while
the broker runs override them: first those for this broker, then those for all brokers, then the file, then the default.

Values have Kafka's syntax: surrounding blanks are ignored, `true` and `false` may have capital letters, whole numbers
have no unit and no `_`, doubles may be `1e3` or `Infinity`, but not `nan`. Commas separate the items of a list. A value
outside of the column "Allowed", or one that contradicts another setting, is an error with Kafka's message. The file is
a Java `.properties` file in UTF-8.
"""


def markdown() -> str:
    """Return the whole page."""
    parts = [
        _INTRODUCTION,
        "## Defaults that differ from Kafka's\n",
        "| Setting | Kafka | Ottla | Why |\n|---|---|---|---|",
    ]
    for name, (value, why) in OTTLA_DEFAULTS.items():
        parts.append(f"| `{name}` | {_code(BROKER_SETTINGS[name].default_text)} | {_code(value)} | {why} |")
    synonyms = {
        name: ", ".join(f"`{each.name}`" for each in broker_names) for name, broker_names in TOPIC_SYNONYMS.items()
    }
    parts += ["\n## Topics\n", *_table(TOPIC_SETTINGS.values(), "Broker's setting", synonyms)]
    modes: dict[str, str] = {name: setting.update for name, setting in BROKER_SETTINGS.items()}
    parts += ["\n## Brokers\n", *_table(BROKER_SETTINGS.values(), "Change", modes)]
    groups = {name: f"`{broker_name}`" for name, broker_name in GROUP_SYNONYMS.items()}
    parts += ["\n## Groups\n", *_table(GROUP_SETTINGS.values(), "Broker's setting", groups)]
    sources: dict[str, str] = {}
    parts += ["\n## Client metrics\n", *_table(CLIENT_METRICS_SETTINGS.values(), "Broker's setting", sources)]
    parts += ["\n## Mirrors\n", *_table(MIRROR_SETTINGS.values(), "Broker's setting", sources)]
    return "\n".join(parts) + "\n"


def _table(settings: Iterable[ServerSetting], extra: str, values: dict[str, str]) -> list[str]:
    rows = [f"| Setting | Type | Default | Allowed | {extra} | Here | Meaning |", "|---|---|---|---|---|---|---|"]
    for setting in settings:
        allowed = _allowed(setting)
        here = setting.status if setting.status == "works" else f"{setting.status}: {reason(setting.name)}"
        rows.append(
            f"| `{setting.name}` | {setting.type} | {_code(setting.default_text)} | {allowed} "
            f"| {values.get(setting.name, '')} | {here} | {setting.doc} |"
        )
    return rows


def _allowed(setting: ServerSetting) -> str:
    if setting.form is not None:
        return "0..4" if setting.form == "codec" else setting.form
    if setting.choices:
        return ("at least one of: " if setting.non_empty else "") + ", ".join(setting.choices)
    if setting.low is not None:
        also = "" if setting.also is None else f", {setting.also}"
        return f"{setting.low}..{'' if setting.high is None else setting.high}{also}"
    return "non-empty" if setting.non_empty else ""


def _code(text: str | None) -> str:
    return "none" if text is None else f"`{text}`" if text else "empty"


if __name__ == "__main__":
    sys.stdout.write(markdown())

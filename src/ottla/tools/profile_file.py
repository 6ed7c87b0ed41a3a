"""The file of profiles: `~/.config/ottla/config.toml` (or below $XDG_CONFIG_HOME), one table of client settings each.

    current = "staging"

    [profiles.staging]
    "bootstrap.servers" = "broker1:9092,broker2:9092"

It may contain passwords: it is written atomically, with mode 0600, and a profile with passwords is refused if other
users can read the file, as ssh refuses its keys. Other content, such as comments, is preserved,
except in the profile that changes.
"""

import json
import os
import re
import shlex
import tomllib
from collections.abc import Iterable
from typing import Any

from ottla.common.failure import Failure, failing_on, reading
from ottla.tools.file_modes import exposure
from ottla.tools.suggestions import did_you_mean


def path() -> str:
    """Return the path of the file, which need not exist."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 - pathlib is slow to import
    return f"{home}/ottla/config.toml"


def load() -> dict[str, Any]:
    """Read the file; returns an empty document if it does not exist. Raises Failure if it cannot be read."""
    with reading(path()), failing_on(ValueError, about=f"{path()} is not valid TOML"):
        try:
            with open(path(), "rb") as file:
                document = tomllib.load(file)
        except FileNotFoundError:
            return {}
    profiles = document.get("profiles", {})
    if not isinstance(profiles, dict) or not all(isinstance(each, dict) for each in profiles.values()):
        raise Failure(f"{path()}: profiles are tables, as in [profiles.staging]", exit_code=2)
    return document


def settings_of(name: str) -> dict[str, object]:
    """Return the client settings of a profile; raises Failure if it does not exist."""
    found = load().get("profiles", {})
    if name not in found:
        advice = did_you_mean(name, found, "`ottla profile list` shows the existing profiles.")
        raise Failure(f"there is no profile {name!r}", *advice, exit_code=2)
    return flat(found[name])


def refuse_exposed(settings: Iterable[str]) -> None:
    """Raise Failure if one of these settings of a profile is secret, and other users can read the file."""
    with reading(path()):
        problem = exposure(path(), settings)
    if problem:
        raise Failure(problem, f"Let only its owner read it: chmod 600 {shlex.quote(path())}", exit_code=2)


def settings_in_use() -> dict[str, object]:
    """Return the settings of the current profile; empty if there is none."""
    current = load().get("current")
    return settings_of(current) if current else {}


def flat(table: dict[str, Any], prefix: str = "") -> dict[str, object]:
    """Return settings by Kafka's names: nested tables become names with dots."""
    settings: dict[str, object] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            settings.update(flat(value, f"{prefix}{name}."))
        else:
            settings[f"{prefix}{name}"] = str(value).lower() if isinstance(value, bool) else value
    return settings


_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)


def store(name: str, settings: dict[str, object] | None) -> None:
    """Write a profile, or delete it (None). Raises Failure if the file cannot be written."""
    document = load()
    table = document.setdefault("profiles", {})
    if settings is None:
        table.pop(name, None)
        if document.get("current") == name:
            use(None)
            document.pop("current")
    else:
        table[name] = settings
    header = f"[profiles.{_key(name)}]"
    section = None if settings is None else "\n".join([header, *(_row(*item) for item in settings.items())]) + "\n"
    parts = _sections(_text())
    # The table of the profile, and the tables in it: [profiles.staging.ssl].
    firsts = [part.split("\n", 1)[0].strip() for part in parts]
    found = [index for index, first in enumerate(firsts) if first == header or first.startswith(f"{header[:-1]}.")]
    if section is not None and found:
        parts[found[0]] = section + "\n" * (found[-1] < len(parts) - 1)
    if found:
        gone = found if section is None else found[1:]
        parts = [part for index, part in enumerate(parts) if index not in gone]
    elif section is not None:
        if parts and parts[-1].strip():
            parts[-1] = parts[-1].rstrip("\n") + "\n\n"
        parts.append(section)
    _write("".join(parts), document)


def use(name: str | None) -> None:
    """Make a profile the current one; with None there is no current profile."""
    document = load()
    document.pop("current", None)
    if name is not None:
        document["current"] = name
    parts = _sections(_text())
    # TOML's lines end in line feeds only, unlike the lines of `splitlines`.
    lines = [line for line in parts[0].split("\n") if not re.match(r"\s*current\s*=", line)]
    if name is not None:
        lines.insert(0, _row("current", name))
    parts[0] = "\n".join(lines)
    if name is not None and parts[1:] and not parts[0].endswith("\n\n"):
        parts[0] += "\n"
    _write("".join(parts), document)


def _text() -> str:
    try:
        with open(path(), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _sections(text: str) -> list[str]:
    """Split into the text before the first table, then each table with its header."""
    starts = [match.start() for match in _HEADER.finditer(text)]
    ends = [*starts, len(text)]
    return [text[: ends[0]], *(text[start:end] for start, end in zip(starts, ends[1:], strict=True))]


def _write(text: str, document: dict[str, Any]) -> None:
    try:
        parsed = tomllib.loads(text)
    except ValueError:
        parsed = None
    target = path()
    if parsed is None or _plain(parsed) != _plain(document):
        # The layout of the text cannot be edited in place.
        other = sorted(document.keys() - {"current", "profiles"})
        if other:
            advice = "Change the profile there, or move the other content to another file."
            raise Failure(f"{target} cannot be changed without losing its {other[0]!r}", advice)
        text = _whole(document)
    try:
        os.makedirs(target.rpartition("/")[0], mode=0o700, exist_ok=True)  # noqa: PTH103 - no pathlib for one call
        draft = f"{target}.{os.getpid()}.new"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)
    except OSError as error:
        raise Failure(f"{target} cannot be written: {error.strerror}") from error


def _plain(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with settings by Kafka's names, so that two documents can be compared."""
    profiles = {name: flat(table) for name, table in document.get("profiles", {}).items()}
    return {**document, "profiles": profiles}


def _whole(document: dict[str, Any]) -> str:
    parts = [_row("current", document["current"]) + "\n"] if document.get("current") else []
    for name, table in document.get("profiles", {}).items():
        parts.append("\n".join([f"[profiles.{_key(name)}]", *(_row(*item) for item in flat(table).items())]) + "\n")
    return "\n".join(parts)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _row(name: str, value: object) -> str:
    if isinstance(value, list):
        return f"{_key(name)} = [{', '.join(_quoted(str(item)) for item in value)}]"
    return f"{_key(name)} = {_quoted(str(value))}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

"""Addresses of databases: `jdbc:` URLs of existing configurations, and plain ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from ottla.connect.config.definition import SettingError

SQLITE, POSTGRESQL, MYSQL = "sqlite", "postgresql", "mysql"
_DIALECTS: Final = {
    "sqlite": SQLITE,
    "postgresql": POSTGRESQL,
    "postgres": POSTGRESQL,
    "mysql": MYSQL,
    "mariadb": MYSQL,
}
PORTS: Final = {POSTGRESQL: 5432, MYSQL: 3306}
_SIGN_IN: Final = frozenset({"user", "password"})


@dataclass(frozen=True)
class Address:
    """A database. For SQLite, `database` is the path of the file."""

    dialect: str
    database: str
    host: str = ""
    port: int = 0
    user: str = ""
    password: str = field(default="", repr=False)
    options: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        if self.dialect == SQLITE:
            return f"sqlite:{self.database}"
        return f"{self.dialect}://{self.host}:{self.port}/{self.database}"


def parse_url(url: str, user: str = "", password: str = "") -> Address:
    """Return the address of a URL; user and password of the settings come first. Raises SettingError."""
    text = url.strip().removeprefix("jdbc:")
    scheme, colon, rest = text.partition(":")
    dialect = _DIALECTS.get(scheme.lower())
    if not colon or dialect is None:
        raise SettingError(
            f"connection.url has the scheme {scheme!r}: use jdbc:sqlite:FILE, jdbc:postgresql://HOST:PORT/DATABASE, "
            "jdbc:mariadb://HOST:PORT/DATABASE or jdbc:mysql://HOST:PORT/DATABASE"
        )
    if dialect == SQLITE:
        path = rest.removeprefix("//") if rest.startswith("///") else rest
        if not path or path == ":memory:":
            raise SettingError("connection.url needs the path of a SQLite file")
        return Address(dialect, path)
    try:
        parts = urlsplit(f"//{rest.removeprefix('//')}")
        port = parts.port or PORTS[dialect]
    except ValueError as error:
        raise SettingError(f"connection.url is not a valid address: {error}") from error
    options = dict(parse_qsl(parts.query))
    database = unquote(parts.path.lstrip("/"))
    if not database:
        raise SettingError("connection.url names no database")
    return Address(
        dialect,
        database,
        parts.hostname or "localhost",
        port,
        user or unquote(parts.username or "") or options.get("user", ""),
        password or unquote(parts.password or "") or options.get("password", ""),
        {name: value for name, value in options.items() if name not in _SIGN_IN},
    )

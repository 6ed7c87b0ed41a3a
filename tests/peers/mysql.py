"""A MySQL 8.0 server of a test, with a binary log of rows, on a free loopback port. See `mariadb`, which it extends."""

from __future__ import annotations

from collections.abc import Mapping

from .cache import MYSQL, missing_for_mysql
from .mariadb import MariaDbServer

USER, PASSWORD = "capture", "secret"
_ONLY_MARIADB = frozenset({"skip-name-resolve"})
# The server reads one statement from each line.
_USERS = f"""create user '{USER}'@'%' identified by '{PASSWORD}';
grant all on *.* to '{USER}'@'%';
"""


class MySqlServer(MariaDbServer):
    """A server and its data directory. Its user signs in with a password, by caching_sha2_password."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        super().__init__({"mysqlx": "OFF", "default-time-zone": "+00:00", **(settings or {})})
        self.user, self.password = USER, PASSWORD
        # The program is in the cache, which another user may not read.
        self._kind, self._system_user = "MySQL", "root"

    def _missing(self) -> str | None:
        return missing_for_mysql()

    def _program(self) -> list[str]:
        return [
            str(MYSQL / "bin" / "mysqld"), "--no-defaults", "--user=root", f"--datadir={self.data}",
            f"--basedir={MYSQL}", f"--lc-messages-dir={MYSQL / 'share'}",
            f"--character-sets-dir={MYSQL / 'share' / 'charsets'}",
        ]  # fmt: skip

    def _installation(self) -> list[str]:
        users = self.data.parent / "users.sql"
        users.write_text(_USERS)
        return [*self._program(), "--initialize-insecure", f"--init-file={users}", "--innodb-flush-method=nosync"]

    def _options(self) -> dict[str, str]:
        return {name: value for name, value in super()._options().items() if name not in _ONLY_MARIADB}

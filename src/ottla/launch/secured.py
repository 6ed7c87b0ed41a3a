"""`ottla up --secure`: certificates and an administrator for nodes on this machine.

Clients log in over TLS with a password. Several nodes identify each other by their certificates. The files are in
DATA-security for a single node, in DIR/security for a cluster, and stay the same at the next start. A directory that
was secured once is never started without `--secure`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

from ottla.common.failure import Failure
from ottla.tools.secured_files import (
    ADMIN_PROPERTIES,
    AUTHORITY_DAYS,
    BROKERS,
    CLIENTS,
    LOCAL_HOSTS,
    SecuredFiles,
    security_properties,
)

ADMIN = "admin"
# `--secure` decides these settings of the user's file.
OWN = ("authorizer.class.name", "inter.broker.listener.name", "listener.security.protocol.map", "super.users")


class LocalSecurity:
    """The files of one node or cluster, and the settings that use them."""

    def __init__(self, directory: Path) -> None:
        """Raises Failure if the directory has another administrator."""
        self._files = SecuredFiles(directory)
        self._password = self._files.password(ADMIN)

    @property
    def directory(self) -> Path:
        """The directory of the files."""
        return self._files.directory

    def settings(self, node_id: int, nodes: int, host: str, listeners: str) -> dict[str, str]:
        """Issue the certificate of a node if it has none; return its settings.

        `listeners` are the listeners of a node that is not secured; CLIENTS takes the place of PLAINTEXT. Raises
        Failure and OSError.
        """
        hosts = [*dict.fromkeys([*LOCAL_HOSTS, os.uname().nodename, *([host] if _is_name(host) else [])])]
        home = self._files.issue(node_id, hosts, AUTHORITY_DAYS)
        secured = listeners.replace("PLAINTEXT://", f"{CLIENTS}://")
        if nodes > 1:
            secured += f",{BROKERS}://127.0.0.1:0"
        names = [each.partition("://")[0] for each in secured.split(",")]
        ids = range(1, nodes + 1) if nodes > 1 else [node_id]
        return security_properties(names, ids, ADMIN, self._password, str(home)) | {"listeners": secured}

    def announced(self, bootstrap: str) -> str:
        """Write the administrator's client settings for these addresses; return the option that names them."""
        self._files.write_admin(bootstrap, ADMIN, self._password)
        return option(self._files.admin_properties)


def option(settings: Path) -> str:
    """Return the option of the commands that names a file with client settings."""
    return f"--command-config {shlex.quote(os.path.relpath(settings))}"


def directory_of(data: str) -> Path:
    """Return where the files of a single node are: beside its data."""
    return Path(f"{data.rstrip('/')}-security").absolute()


def chosen(options: SimpleNamespace, directory: Path) -> LocalSecurity | None:
    """Return the security of a start; None without `--secure`. Raises Failure for a secured directory without it."""
    if getattr(options, "secure", False):
        return LocalSecurity(directory)
    if (directory / ADMIN_PROPERTIES).exists():
        raise Failure(
            f"{directory} shows that this was started with --secure: without it, everyone could read the data",
            f"Give --secure again. To give up the protection, delete {directory}.",
        )
    return None


def refuse_own(given: Mapping[str, str]) -> None:
    """Raise Failure if the user's settings contradict `--secure`."""
    own = sorted(given.keys() & set(OWN))
    if own:
        problem = f"--secure sets {own[0]} itself"
        advice = "Settings of your own: `ottla security init` writes files to start with, for `ottla up --config`."
        raise Failure(problem, advice, exit_code=2)


def _is_name(host: str) -> bool:
    return host not in ("", "0.0.0.0", "::")  # noqa: S104 - compared, not bound

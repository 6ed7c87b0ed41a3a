"""The files of a systemd service: a unit, its user, and first settings.

`files` returns them as text; `install` and `uninstall` write and delete them below a root directory. Logs go to the
journal, which limits and rotates them. The Debian package has the same unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

UNIT: Final = "etc/systemd/system/ottla.service"
USER_FILE: Final = "etc/sysusers.d/ottla.conf"
SETTINGS: Final = "etc/ottla/server.properties"
DATA: Final = "/var/lib/ottla"

_UNIT_TEXT: Final = """\
[Unit]
Description=Ottla, a Kafka-compatible broker
Documentation=file:/{settings}
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
User=ottla
Group=ottla
ExecStart={program} up --config /{settings}
Environment=OTTLA_DATA={data} PYTHONUNBUFFERED=1
StateDirectory=ottla
StateDirectoryMode=0700
ConfigurationDirectory=ottla
# Files of segments and connections.
LimitNOFILE=1048576
# A stop hands over leaders and flushes.
TimeoutStopSec=120
KillMode=mixed
Restart=on-failure
RestartSec=2
# The kernel ends other processes first.
OOMScoreAdjust=-500
NoNewPrivileges=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectSystem=strict
ProtectHome=yes
ProtectControlGroups=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
CapabilityBoundingSet=
UMask=0077

[Install]
WantedBy=multi-user.target
"""
_USER_TEXT: Final = f'u ottla - "Ottla broker" {DATA}\n'
_SETTINGS_TEXT: Final = f"""\
# Kafka's settings; docs/configuration.md lists them. A listener that other machines reach needs security:
# `ottla security init` writes a file for that.
node.id=1
process.roles=broker,controller
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:9093
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={DATA}
"""


class ServiceFile(NamedTuple):
    """A file below the root. The administrator's own version of `is_settings` files is never overwritten or deleted."""

    path: str
    text: str
    mode: int
    is_settings: bool = False


def files(program: str) -> list[ServiceFile]:
    """Return the files of a service that runs this program, an absolute path."""
    unit = _UNIT_TEXT.format(program=program, settings=SETTINGS, data=DATA)
    return [
        ServiceFile(USER_FILE, _USER_TEXT, 0o644),
        # It may get passwords: the group of the service reads it, other users do not.
        ServiceFile(SETTINGS, _SETTINGS_TEXT, 0o640, is_settings=True),
        ServiceFile(UNIT, unit, 0o644),
    ]


def install(root: Path, program: str) -> dict[str, str]:
    """Write the files below a root; returns what happened to each path. Raises OSError."""
    done = {}
    for file in files(program):
        path = root / file.path
        if file.is_settings and path.exists():
            done[file.path] = "unchanged"
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8")
        path.chmod(file.mode)
        done[file.path] = "written"
    return done


def uninstall(root: Path) -> dict[str, str]:
    """Delete the unit and the user's file below a root; settings and data stay. Raises OSError."""
    done = {}
    for file in files("-"):
        path = root / file.path
        if path.exists():
            done[file.path] = "unchanged" if file.is_settings else "deleted"
            if not file.is_settings:
                path.unlink()
    return done


def status(root: Path, unit_state: Mapping[str, str]) -> dict[str, object]:
    """Return which files exist, and the state that systemd knows."""
    return {
        "installed": (root / UNIT).exists(),
        "files": {file.path: (root / file.path).exists() for file in files("-")},
        "active": unit_state.get("ActiveState"),
        "enabled": unit_state.get("UnitFileState") or None,
        "pid": int(unit_state.get("MainPID", "0")) or None,
    }

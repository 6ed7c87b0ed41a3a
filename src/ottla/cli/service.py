"""Run a broker as a systemd service: install, remove or show it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from ottla.cli.commands import Group, Option, Options
from ottla.cli.output import Output, output_options
from ottla.common.failure import Failure
from ottla.tools import service_files

_DEADLINE_S = 180.0
"""Longer than TimeoutStopSec of the unit: `systemctl disable --now` waits for the broker to stop."""
_ROOT = Option("--root DIR", "write below this directory and call no other program, for packages and images")
_DRY_RUN = Option("--dry-run", "print what would be done")

COMMAND = Group(
    __doc__,
    """
    ottla service install --dry-run
    ottla service uninstall --dry-run
    """,
    shared=[*output_options()],
)


@COMMAND.verb(
    "install",
    _ROOT,
    Option("--program PATH", "the `ottla` command of the service; default: this one"),
    _DRY_RUN,
    examples="""
    ottla service install --dry-run
    ottla service install --root ./image --program /usr/bin/ottla
    """,
)
def _install(options: Options) -> None:
    """Write a unit, its user and first settings. It does not start the broker.

    The unit limits what the broker may do and raises the limit of open files. Data are in /var/lib/ottla, settings in
    /etc/ottla/server.properties, which is never overwritten. Logs go to the journal: journalctl -u ottla.
    """
    output, program = Output(options), _program(options)
    if options.dry_run:
        for file in service_files.files(program):
            output.line(f"# /{file.path}, mode {file.mode:04o}")
            output.line(file.text)
        return
    root = Path(options.root or "/")
    with _explained():
        done = service_files.install(root, program)
    _report(output, root, done)
    if options.root is None:
        _run("systemd-sysusers")
        shutil.chown(root / service_files.SETTINGS, group="ottla")
        _run("systemctl", "daemon-reload")
        output.note("Start it now and at each boot: systemctl enable --now ottla")


@COMMAND.verb(
    "uninstall",
    _ROOT,
    _DRY_RUN,
    examples="""
    ottla service uninstall --dry-run
    """,
)
def _uninstall(options: Options) -> None:
    """Stop the service and delete its unit. Settings, data and the user stay."""
    output, root = Output(options), Path(options.root or "/")
    if options.dry_run:
        for file in service_files.files("-"):
            output.line(f"{root / file.path}: {'stays' if file.is_settings else 'would be deleted'}")
        return
    if options.root is None and (root / service_files.UNIT).exists():
        _run("systemctl", "disable", "--now", "ottla")
    with _explained():
        done = service_files.uninstall(root)
    _report(output, root, done)
    if options.root is None:
        _run("systemctl", "daemon-reload")


@COMMAND.verb("status", _ROOT, examples="ottla service status --json || true")
def _status(options: Options) -> int:
    """Show whether the service is installed, enabled and active. Exit code 1 if it is not active."""
    output, root = Output(options), Path(options.root or "/")
    properties = ("ActiveState", "UnitFileState", "MainPID")
    known: dict[str, str] = {}
    if options.root is None and shutil.which("systemctl"):
        shown = _run("systemctl", "show", "ottla", *(f"--property={each}" for each in properties), check=False)
        known = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    found = service_files.status(root, known)
    if output.json:
        output.object(found)
    else:
        state = found["active"] or "unknown"
        installed = "installed" if found["installed"] else "not installed"
        output.line(f"ottla.service: {installed}, {found['enabled'] or 'not enabled'}, {state}")
    return 0 if found["active"] == "active" else 1


def _program(options: Options) -> str:
    """Return the absolute path of the command that the unit starts. Raises Failure."""
    program = str(options.program or shutil.which("ottla") or Path(sys.executable).with_name("ottla"))
    if not Path(program).is_absolute():
        raise Failure(f"--program {program} must be an absolute path", exit_code=2)
    if any(character.isspace() or character in "%$\"'\\" for character in program):
        raise Failure(f"{program}: systemd needs a path without spaces and quotes", exit_code=2)
    return program


class _explained:  # noqa: N801 - used like a function
    """Turns an OSError into a Failure that says what to do."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            advice = "Run it as root, or choose another directory with --root."
            raise Failure(f"{error.filename}: {error.strerror}", advice) from error


def _report(output: Output, root: Path, done: dict[str, str]) -> None:
    for path, what in done.items():
        if output.json:
            output.object({"path": str(root / path), "result": what})
        else:
            output.line(f"{root / path}: {what}")


def _run(*words: str, check: bool = True) -> str:
    """Run a program of systemd and return its output. Raises Failure."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)  # noqa: S603 - no input
    except FileNotFoundError as error:
        raise Failure(f"{words[0]} does not exist: this machine has no systemd", "Use --root DIR.") from error
    except subprocess.TimeoutExpired as error:
        problem = f"{' '.join(words)} is still running after {_DEADLINE_S:.0f} s, and was ended"
        raise Failure(problem, "See what it waits for, then repeat the command: systemctl list-jobs") from error
    if check and done.returncode != 0:
        raise Failure(f"{' '.join(words)}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout

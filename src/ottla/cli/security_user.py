"""Add, list and remove the users of a cluster and change their passwords: SCRAM credentials (KIP-554).

A password is read from the terminal, from standard input, or from a file, never from the command line, where other
users of the machine and the shell's history can see it.
"""

from __future__ import annotations

import getpass
import os
import secrets
import sys

from ottla.cli.commands import Argument, Choice, Group, Option, Options, quiet_option, usage_error, yes_option
from ottla.cli.connect import connect, connection_options
from ottla.cli.names import confirm_deletion
from ottla.cli.output import Column, Output, output_options
from ottla.clients import admin as api
from ottla.common.failure import Failure, reading

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
DEFAULT_ITERATIONS = 8192
MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384
PASSWORD_BYTES = 24

COMMAND = Group(
    __doc__,
    """
    ottla security user add bob --generate      prints the new password
    ottla security user list
    ottla security user password bob --generate
    ottla security user remove bob --yes
    """,
    metavar="VERB",
)


def _user() -> Argument:
    return Argument("user", "USER", help="the name of the user")


def _password_options() -> list[Option]:
    return [
        Option("--password-file FILE", "a file whose first line is the password; - is standard input"),
        Option("--generate", "create a random password and print it"),
        Option(
            "--mechanism MECHANISM",
            "SCRAM-SHA-256 or SCRAM-SHA-512 (default)",
            type=Choice(MECHANISMS),
            default=MECHANISMS[1],
        ),
        Option("--iterations N", "how often the password is hashed", type=int, default=DEFAULT_ITERATIONS),
    ]


@COMMAND.verb(
    "add",
    _user(),
    *_password_options(),
    *output_options(),
    *connection_options(),
    examples="""
    ottla security user add eve --generate
    cat secret.txt | ottla security user add ann
    ottla security user add cid --password-file secret.txt
    """,
    aliases=("create",),
)
def _add(options: Options) -> None:
    """Add a user. Its permissions are ACLs."""
    admin = connect(options)
    if any(options.mechanism == each.mechanism for each in _credentials(admin, options.user)):
        advice = f"`ottla security user password {options.user}` changes its password."
        raise Failure(f"the user {options.user} exists already", advice)
    _store(options, admin, "added")


@COMMAND.verb(
    "password",
    _user(),
    *_password_options(),
    *output_options(),
    *connection_options(),
    examples="""
    ottla security user password eve --generate
    ottla security user password eve --password-file secret.txt
    """,
    summary="change the password of a user",
)
def _change_password(options: Options) -> None:
    """Change the password of a user. New connections need the new one; open connections stay open until they log in
    again (connections.max.reauth.ms).
    """
    admin = connect(options)
    if not _credentials(admin, options.user):
        raise Failure(f"there is no user {options.user}", "`ottla security user list` shows the users.")
    _store(options, admin, "changed")


@COMMAND.verb(
    "list",
    quiet_option(),
    *output_options(),
    *connection_options(),
    examples="ottla security user list",
    summary="list the users with SCRAM credentials",
    aliases=("ls",),
)
def _list(options: Options) -> None:
    """List the users with SCRAM credentials. Users in the settings of the nodes (PLAIN) are not listed."""
    users = connect(options).describe_scram_credentials()
    rows = [
        {"user": user, "mechanism": each.mechanism, "iterations": each.iterations}
        for user, credentials in sorted(users.items())
        for each in credentials
    ]
    columns = [Column("user", narrow=True), Column("mechanism"), Column("iterations", right=True)]
    Output(options).listing("user", columns, rows, empty="There are no users with SCRAM credentials.")


@COMMAND.verb(
    "remove",
    _user(),
    yes_option(),
    *output_options(),
    *connection_options(),
    examples="ottla security user remove eve --yes",
    aliases=("rm", "delete"),
)
def _remove(options: Options) -> None:
    """Remove all SCRAM credentials of a user. Its ACLs stay."""
    admin = connect(options)
    found = _credentials(admin, options.user)
    if not found:
        raise Failure(f"there is no user {options.user}", "`ottla security user list` shows the users.")
    confirm_deletion(f"Remove the user {options.user}?", yes=options.yes)
    admin.alter_scram_credentials([api.ScramDeletion(options.user, each.mechanism) for each in found])
    Output(options).changed(f"{options.user}: removed", {"user": options.user, "removed": True})


def _credentials(admin: api.Admin, user: str) -> tuple[api.ScramCredential, ...]:
    # A request for one user would fail if the user does not exist.
    return admin.describe_scram_credentials().get(user, ())


def _store(options: Options, admin: api.Admin, verb: str) -> None:
    if not MIN_ITERATIONS <= options.iterations <= MAX_ITERATIONS:
        problem = f"--iterations is {options.iterations}; it must be {MIN_ITERATIONS} to {MAX_ITERATIONS}"
        raise Failure(problem, exit_code=2)
    password = _password(options)
    admin.alter_scram_credentials([api.ScramUpsertion(options.user, password, options.mechanism, options.iterations)])
    output = Output(options)
    row = {"user": options.user, "mechanism": options.mechanism, verb: True}
    if options.generate:
        row["password"] = password
    output.changed(f"{options.user}: {verb} ({options.mechanism})", row)
    if options.generate:
        output.line(f"password: {password}")


def _password(options: Options) -> str:
    """Return the password; raises Failure if it is empty."""
    if options.generate:
        if options.password_file:
            raise usage_error("--generate and --password-file exclude each other")
        return secrets.token_urlsafe(PASSWORD_BYTES)
    path = os.fsdecode(options.password_file or "")
    if path not in ("", "-"):
        with reading(f"the file {path}"), open(path, encoding="utf-8") as file:
            password = file.readline().rstrip("\n")
    elif path or not sys.stdin.isatty():
        password = sys.stdin.readline().rstrip("\n")
    else:
        password = getpass.getpass(f"password of {options.user}: ")
        if password != getpass.getpass("again: "):
            raise Failure("the two passwords differ", exit_code=2)
    if not password:
        advice = "Type it, send it to standard input, name a --password-file, or --generate one."
        raise Failure("the password is empty", advice, exit_code=2)
    return password

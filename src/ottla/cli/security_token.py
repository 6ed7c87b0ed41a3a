"""Create, list, renew and remove delegation tokens: log-ins with a user's rights that expire (KIP-48).

A token is for the workers of a job: they get its file instead of the user's password. The log-in that creates a token
must itself be by a password or a certificate.
"""

from __future__ import annotations

import datetime as dt
import os

from ottla.cli.commands import Argument, Group, Option, Options, quiet_option, yes_option
from ottla.cli.connect import connect, connection_options
from ottla.cli.names import confirm_deletion
from ottla.cli.output import Column, Output, output_options
from ottla.clients import admin as api
from ottla.common.failure import Failure
from ottla.config import format_properties
from ottla.tools import values

DEFAULT = -1

COMMAND = Group(
    __doc__,
    """
    ottla security token create --renewer scheduler --write job.properties
    ottla security token list
    ottla security token renew TOKEN-ID --period 12h
    ottla security token remove TOKEN-ID --yes
    """,
    metavar="VERB",
)


def _token() -> Argument:
    return Argument("token", "TOKEN-ID", help="the id of the token")


def _period(text: str) -> Option:
    return Option("--period PERIOD", text)


@COMMAND.verb(
    "create",
    Option("--write FILE", "write the log-in settings into a new file for you alone, instead of printing them"),
    Option("--owner USER", "the user whose rights the token has; default: you"),
    Option("--renewer USER", "a user who may renew the token; may be repeated", name="renewers", multiple=True),
    Option("--max-lifetime PERIOD", "how long it can be renewed; default: delegation.token.max.lifetime.ms"),
    *output_options(),
    *connection_options(),
    examples="""
    ottla security token create --write job.properties
    ottla security token create --renewer scheduler --max-lifetime 2d
    """,
    aliases=("add",),
)
def _create(options: Options) -> None:
    """Create a token. It expires after delegation.token.expiry.time.ms (a day) unless it is renewed."""
    admin, output = connect(options), Output(options)
    token = admin.create_delegation_token(
        owner=None if options.owner is None else _principal(options.owner),
        renewers=[_principal(each) for each in options.renewers],
        max_lifetime_ms=_milliseconds(options.max_lifetime),
    )
    settings = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": token.jaas_config}
    row = _row(token)
    if options.write is None:
        row |= settings
    else:
        _write(admin, token, os.fsdecode(options.write), settings)
        row["file"] = os.fsdecode(options.write)
    output.changed(f"{token.token_id}: created, expires {_time(token.expiry_timestamp_ms)}", row)
    for name, value in settings.items() if options.write is None else ():
        output.line(f"{name}={value}")


@COMMAND.verb(
    "list",
    Option("--owner USER", "only tokens of this user; may be repeated", name="owners", multiple=True),
    quiet_option(),
    *output_options(),
    *connection_options(),
    examples="ottla security token list --owner ann",
    summary="list tokens, without their secrets",
    aliases=("ls",),
)
def _list(options: Options) -> None:
    """List the tokens that you own, requested, or may renew or describe."""
    owners = [_principal(each) for each in options.owners] or None
    found = sorted(connect(options).describe_delegation_token(owners), key=lambda each: each.token_id)
    columns = [
        Column("token", narrow=True),
        Column("owner"),
        Column("renewers", cell=lambda row: ", ".join(row["renewers"])),
        Column("expires", cell=lambda row: _time(row["expires"])),
        Column("renewable until", cell=lambda row: _time(row["max"])),
    ]
    Output(options).listing("token", columns, [_row(each) for each in found], empty="There are no tokens.")


@COMMAND.verb(
    "renew",
    _token(),
    _period("from now; default: delegation.token.expiry.time.ms"),
    *output_options(),
    *connection_options(),
    examples="ottla security token renew FNVLeqsJQBqu --period 12h",
)
def _renew(options: Options) -> None:
    """Let a token expire later, at most at the end of its lifetime."""
    admin = connect(options)
    token = _find(admin, options.token)
    expires_ms = admin.renew_delegation_token(token.hmac, _milliseconds(options.period))
    row = {"token": token.token_id, "expires": expires_ms, "renewed": True}
    Output(options).changed(f"{token.token_id}: expires {_time(expires_ms)}", row)


@COMMAND.verb(
    "remove",
    _token(),
    yes_option(),
    *output_options(),
    *connection_options(),
    examples="ottla security token remove FNVLeqsJQBqu --yes",
    aliases=("rm", "delete", "expire"),
)
def _remove(options: Options) -> None:
    """Remove a token. Connections that logged in by it last until the expiry that it had then."""
    admin = connect(options)
    token = _find(admin, options.token)
    confirm_deletion(f"Remove the token {token.token_id} of {token.owner}?", yes=options.yes)
    admin.expire_delegation_token(token.hmac)
    Output(options).changed(f"{token.token_id}: removed", {"token": token.token_id, "removed": True})


def _find(admin: api.Admin, token_id: str) -> api.DelegationToken:
    for token in admin.describe_delegation_token():
        if token.token_id == token_id:
            return token
    raise Failure(f"there is no token {token_id} that you may see", "`ottla security token list` shows the tokens.")


def _write(admin: api.Admin, token: api.DelegationToken, path: str, settings: dict[str, str]) -> None:
    """Write the settings into a new file; if that fails, the token is removed."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(format_properties(settings))
    except OSError as error:
        admin.expire_delegation_token(token.hmac)
        raise Failure(f"{path} cannot be written: {error.strerror}; the token is removed") from error


def _row(token: api.DelegationToken) -> dict[str, object]:
    return {
        "token": token.token_id,
        "owner": token.owner,
        "renewers": list(token.renewers),
        "expires": token.expiry_timestamp_ms,
        "max": token.max_timestamp_ms,
    }


def _principal(user: str) -> str:
    return user if ":" in user else f"User:{user}"


def _milliseconds(period: str | None) -> int:
    return DEFAULT if period is None else values.milliseconds(period)


def _time(epoch_ms: int) -> str:
    return dt.datetime.fromtimestamp(epoch_ms / 1000, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

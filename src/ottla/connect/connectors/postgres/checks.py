"""Checks of a configuration against the database: every fault at once, each with its remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.api import Config
from ottla.connect.connectors.capture import filters as filters_
from ottla.connect.connectors.capture.filters import Filters
from ottla.connect.connectors.postgres.catalog import Catalog, Table
from ottla.connect.connectors.postgres.replication import quoted
from ottla.connect.connectors.postgres.session import connect, errors
from ottla.connect.connectors.postgres.settings import Options, unsupported
from ottla.connect.connectors.postgres.slots import Slots
from ottla.connect.connectors.postgres.tables import captured
from ottla.connect.errors import ConnectError

if TYPE_CHECKING:
    import psycopg

Found = dict[str, list[str]]
MOST_NAMED: Final = 10
_OLDEST: Final = 100_000


def problems(config: Config) -> Mapping[str, Sequence[str]]:
    """Return the faults by setting. Connects for at most 10 s."""
    found: Found = {}
    for name, text in unsupported(config).items():
        found.setdefault(name, []).append(text)
    options = Options.of(config)
    for name, text in filters_.faults(options).items():
        found.setdefault(name, []).append(text)
    for each in options.names("skipped.operations"):
        if each not in ("c", "u", "d", "t", "none"):
            found.setdefault("skipped.operations", []).append(f"{each!r} is not one of c, u, d, t and none.")
    if found:
        return found
    try:
        connection = connect(options)
    except ConnectError as error:
        return {"database.hostname": [str(error)]}
    try:
        with errors(options, "check the configuration"), connection:
            connection.execute("set statement_timeout = '8s'")
            _server(connection, options, found)
            _tables(connection, options, found)
    except ConnectError as error:
        found.setdefault("database.dbname", []).append(str(error))
    return found


def _server(connection: psycopg.Connection[Any], options: Options, found: Found) -> None:
    def say(name: str, text: str) -> None:
        found.setdefault(name, []).append(text)

    if connection.info.server_version < _OLDEST:
        say("database.hostname", "The server is older than PostgreSQL 10, which has no pgoutput.")
        return
    if options.snapshot_mode == "initial_only":
        return
    row = connection.execute(
        "select current_setting('wal_level'), rolreplication or rolsuper, pg_is_in_recovery(), "
        "current_setting('max_replication_slots')::int, (select count(*) from pg_replication_slots), "
        "current_setting('max_wal_senders')::int from pg_roles where rolname = current_user"
    ).fetchone()
    if row is None:
        return
    level, may, standby, most_slots, slots, senders = row
    user = options.text("database.user")
    if level != "logical":
        say("database.hostname", f"wal_level is {level}: ALTER SYSTEM SET wal_level = logical, and restart the server.")
    if not may:
        say("database.user", f"User {user} may not replicate: ALTER ROLE {quoted(user)} REPLICATION.")
    if standby and connection.info.server_version < 160_000:
        say("database.hostname", "The server is a standby: logical decoding there needs PostgreSQL 16.")
    slot = None
    try:
        slot = Slots(connection, options).usable()
    except ConnectError as error:
        say("slot.name", str(error))
    if slot is None and slots >= most_slots:
        say("slot.name", f"All {most_slots} replication slots are in use: raise max_replication_slots, or drop one.")
    if senders < 1:
        say("database.hostname", "max_wal_senders is 0: the stream needs one.")
    if slot is not None and slot.lost:
        say("slot.name", f"Slot {options.slot} is lost: drop it, and read the tables again.")


def _tables(connection: psycopg.Connection[Any], options: Options, found: Found) -> None:
    filters = Filters(options)
    everything = Catalog(connection, options).tables()
    tables = captured(everything, filters, options)
    if not tables:
        what = "table.include.list" if options.names("table.include.list") else "database.dbname"
        hint = _partition_hint(everything, filters, options)
        found.setdefault(what, []).append(f"No table is captured.{hint}")
    if filters.signals and filters.signals not in {each.full_name for each in everything}:
        found.setdefault("signal.data.collection", []).append(f"Table {filters.signals} does not exist.")
    _rights(connection, options, tables, found)
    if options.snapshot_mode != "initial_only":
        _publication(connection, options, tables, found)


def _partition_hint(tables: Sequence[Table], filters: Filters, options: Options) -> str:
    roots = [each.full_name for each in tables if each.kind == "p" and filters.captures(each.schema, each.name)]
    if not roots or options.flag("publish.via.partition.root"):
        return ""
    return f" {roots[0]} is partitioned: list its partitions, or set publish.via.partition.root=true."


def _rights(connection: psycopg.Connection[Any], options: Options, tables: Sequence[Table], found: Found) -> None:
    if options.snapshot_mode == "no_data":
        return
    oids = [each.oid for each in tables]
    rows = connection.execute(
        "select c.oid::regclass::text from unnest(%s::oid[]) as given(oid) join pg_class c using (oid) "
        "where not (has_table_privilege(c.oid, 'select') and has_schema_privilege(c.relnamespace, 'usage'))",
        [oids],
    ).fetchall()
    if rows:
        names, user = _named([row[0] for row in rows]), options.text("database.user")
        found.setdefault("database.user", []).append(f"User {user} may not read {names}: GRANT SELECT ON {names}.")


def _publication(connection: psycopg.Connection[Any], options: Options, tables: Sequence[Table], found: Found) -> None:
    name, mode = options.publication, options.text("publication.autocreate.mode")
    row = connection.execute(
        "select puballtables, pubowner::regrole::text from pg_publication where pubname = %s", [name]
    ).fetchone()
    create = f"CREATE PUBLICATION {quoted(name)} FOR TABLE {_named([each.full_name for each in tables])}"
    if row is None:
        if mode == "disabled" or options.flag("read.only"):
            found.setdefault("publication.name", []).append(f"Publication {name} does not exist: {create}.")
        elif mode == "all_tables" and not _is_superuser(connection):
            user = options.text("database.user")
            found.setdefault("publication.autocreate.mode", []).append(
                f"User {user} is not a superuser and may not publish all tables: set "
                f"publication.autocreate.mode=filtered, or run {create}."
            )
    elif mode != "filtered" and not row[0]:
        published = {
            f"{schema}.{table}"
            for schema, table in connection.execute(
                "select schemaname, tablename from pg_publication_tables where pubname = %s", [name]
            ).fetchall()
        }
        missing = [each.full_name for each in tables if each.full_name not in published]
        if missing:
            found.setdefault("publication.name", []).append(
                f"Publication {name} does not have {_named(missing)}: ALTER PUBLICATION {quoted(name)} ADD TABLE "
                f"{_named(missing)}."
            )


def _is_superuser(connection: psycopg.Connection[Any]) -> bool:
    row = connection.execute("select rolsuper from pg_roles where rolname = current_user").fetchone()
    return bool(row and row[0])


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more

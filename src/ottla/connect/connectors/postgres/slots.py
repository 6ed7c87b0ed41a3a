"""The replication slot and the publication: found, created, compared with the committed offset, dropped."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.connectors.postgres.catalog import Table
from ottla.connect.connectors.postgres.pgoutput import lsn_of
from ottla.connect.connectors.postgres.replication import lost_advice, quoted
from ottla.connect.connectors.postgres.session import driver, errors, place
from ottla.connect.connectors.postgres.settings import Options
from ottla.connect.errors import ConnectError, RetriableError

if TYPE_CHECKING:
    import psycopg

logger = logging.getLogger(__name__)
CREATE_TIMEOUT_S: Final = 90


@dataclass(frozen=True)
class Slot:
    """A replication slot, as pg_replication_slots has it."""

    confirmed: int
    lag: int
    """The bytes of the log that the server retains for it."""
    status: str
    """reserved, extended, unreserved or lost."""
    plugin: str
    database: str

    @property
    def lost(self) -> bool:
        """Whether changes before its position were deleted."""
        return self.status == "lost"


_SLOT = """
select confirmed_flush_lsn::text, pg_wal_lsn_diff(pg_current_wal_lsn(), coalesce(restart_lsn, confirmed_flush_lsn)),
       coalesce(wal_status, 'lost'), plugin, database
from pg_replication_slots where slot_name = %s"""


class Slots:
    """The slot and the publication of a configuration."""

    def __init__(self, connection: psycopg.Connection[Any], options: Options) -> None:
        self._connection, self._options = connection, options

    def find(self) -> Slot | None:
        """Return the slot, or None."""
        with errors(self._options, "read the replication slot"):
            row = self._connection.execute(_SLOT, [self._options.slot]).fetchone()
        if row is None:
            return None
        return Slot(lsn_of(row[0]) if row[0] else 0, int(row[1] or 0), *row[2:])

    def usable(self) -> Slot | None:
        """Return the slot if it exists. Raises ConnectError if it is another plug-in's or database's."""
        slot = self.find()
        if slot is None:
            return None
        database = self._options.text("database.dbname")
        if slot.plugin != "pgoutput" or slot.database != database:
            raise ConnectError(
                f"Slot {self._options.slot} has plug-in {slot.plugin} and database {slot.database}, not pgoutput and "
                f"{database}: choose another slot.name."
            )
        return slot

    def create(self) -> Slot:
        """Create the slot. Waits for the end of running transactions, at most CREATE_TIMEOUT_S."""
        psycopg, options = driver(), self._options
        arguments, given = "%s, 'pgoutput', false", [options.slot]
        if options.flag("slot.failover"):
            arguments += ", false, true"
        with errors(options, f"create slot {options.slot}"), self._connection.transaction():
            self._connection.execute(f"set local statement_timeout = '{CREATE_TIMEOUT_S}s'")
            try:
                self._connection.execute(f"select pg_create_logical_replication_slot({arguments})", given)
            except psycopg.errors.QueryCanceled as error:
                raise RetriableError(
                    f"Slot {options.slot} cannot be created while older transactions run: see pg_stat_activity."
                ) from error
        slot = self.find()
        if slot is None:
            raise RetriableError(f"Slot {options.slot} was dropped right after it was created.")
        logger.info("Created replication slot %s at %s", options.slot, place(options))
        return slot

    def drop(self) -> None:
        """Drop the slot, if it exists and is not in use."""
        with errors(self._options, "drop the replication slot"):
            self._connection.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots "
                "where slot_name = %s and not active",
                [self._options.slot],
            )

    def check_position(self, slot: Slot, position: int) -> int:
        """Return where to go on after a committed position. Raises ConnectError if changes between are lost."""
        if slot.lost:
            raise ConnectError(f"Slot {self._options.slot} is lost: it held more of the log than allowed. "
                               f"{lost_advice(self._options)}")  # fmt: skip
        if slot.confirmed <= position:
            return position
        strategy = self._options.text("offset.mismatch.strategy")
        if strategy == "trust_offset":
            missing = slot.confirmed - position
            raise ConnectError(
                f"Slot {self._options.slot} is {missing} bytes ahead of the committed offset: it was advanced or "
                f"created again. {lost_advice(self._options)} "
                "To go on without them, set offset.mismatch.strategy=trust_slot."
            )
        logger.warning(
            "Slot %s is ahead of the committed offset; going on at the slot (%s)", self._options.slot, strategy
        )
        return slot.confirmed

    def ensure_publication(self, tables: Sequence[Table]) -> None:
        """Create or extend the publication, as `publication.autocreate.mode` says. Raises ConnectError if absent."""
        options = self._options
        mode, name = options.text("publication.autocreate.mode"), options.publication
        with errors(options, "read the publication"):
            row = self._connection.execute(
                "select puballtables from pg_publication where pubname = %s", [name]
            ).fetchone()
        if row is not None and (mode != "filtered" or row[0]):
            return
        if row is None and (mode == "disabled" or options.flag("read.only")):
            raise ConnectError(f"Publication {name} does not exist: CREATE PUBLICATION {quoted(name)} FOR TABLE ...")
        with errors(options, f"create publication {name}"):
            self._connection.execute(_statement(options, mode, tables, exists=row is not None))

    def set_replica_identities(self, tables: Sequence[Table]) -> None:
        """Apply `replica.identity.autoset.values`."""
        for part in self._options.text("replica.identity.autoset.values").split(","):
            pattern, _, identity = part.strip().rpartition(":")
            for each in tables:
                if pattern and re.fullmatch(pattern, each.full_name) and each.identity != identity[:1].lower():
                    with errors(self._options, f"set the replica identity of {each.full_name}"):
                        name = f"{quoted(each.schema)}.{quoted(each.name)}"
                        self._connection.execute(f"alter table {name} replica identity {_identity(identity)}")


def _identity(text: str) -> str:
    word, _, index = text.strip().partition(" ")
    if word.upper() in ("FULL", "DEFAULT", "NOTHING"):
        return word.upper()
    if word.upper() == "INDEX" and index:
        return f"using index {quoted(index.strip())}"
    raise ConnectError(f"replica.identity.autoset.values: {text!r} is not FULL, DEFAULT, NOTHING or INDEX name")


def _statement(options: Options, mode: str, tables: Sequence[Table], *, exists: bool) -> str:
    name = quoted(options.publication)
    via = options.flag("publish.via.partition.root")
    names = ", ".join(f"{quoted(each.schema)}.{quoted(each.name)}" for each in tables)
    if mode == "filtered" and not tables:
        raise ConnectError("No table matches table.include.list and schema.include.list: nothing to publish.")
    if exists:
        return f"alter publication {name} set table {names}"
    what = {"all_tables": " for all tables", "no_tables": ""}.get(mode, f" for table {names}")
    return f"create publication {name}{what}" + (" with (publish_via_partition_root = true)" if via else "")

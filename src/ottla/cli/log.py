"""Read the files of a log: segments, indices, checkpoints. Needs no broker and changes no file."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli import units
from ottla.cli.commands import Argument, Choice, Group, Option, Options
from ottla.cli.output import output_options
from ottla.cli.progress import Progress, output_is_a_file
from ottla.cli.terminal import Failure, Style

if TYPE_CHECKING:
    from ottla.tools.dump.files import Found
    from ottla.tools.dump.rows import Row
    from ottla.tools.dump.segment import Depth

COMMAND = Group(
    __doc__,
    """
    ottla log dump data/orders-0        every batch and index entry
    ottla log dump data/orders-0/00000000000000000000.log --deep
    ottla log dump data --verify        check a whole data directory
    """,
)
_KINDS = ("data", "metadata", "offsets", "transactions", "shares")


@COMMAND.verb(
    "dump",
    Argument("paths", "FILE|DIR", nargs=-1, required=True, help="files, directories of partitions, data directories"),
    Option("--deep", "show the records of each batch"),
    Option("--verify", "verify checksums, records, offsets and indices; without --deep shows only totals and damage"),
    Option("--as", "the kind of the records; default: by the name of the directory", name="kind", type=Choice(_KINDS)),
    *output_options(),
    examples="""
    ottla log dump data/orders-0             batches, indices, checkpoints
    ottla log dump data/orders-0 --deep      also their records
    ottla log dump data --verify             exit code 1 if something is damaged
    ottla log dump data/__consumer_offsets-12 --deep      offsets and groups
    ottla log dump data/__cluster_metadata-0 --deep --json | jq .record
    """,
    summary="show and check files of a log",
)
def _dump(options: Options) -> int:
    """Show segments, indices, snapshots and checkpoints.

    The files of a running broker may end in an incomplete batch, which is reported as damage.
    """
    from ottla.tools.dump.files import files_below

    found: list[Found] = []
    for path in options.paths:
        try:
            below = list(files_below(Path(path)))
            if not below:
                Path(path).stat()
                raise Failure(f"{path} is not a file of a log", exit_code=2)
        except OSError as error:
            raise Failure(f"{path} cannot be read: {error.strerror}", exit_code=2) from error
        found += below
    sizes = [_size(each.path) for each in found]
    bar = Progress("B", shown=_shows_progress(options), total=sum(sizes))
    dump = _Dump(options, bar)
    with bar.cleared():
        try:
            for each, size in zip(found, sizes, strict=True):
                dump.file(each, size)
        except KeyboardInterrupt:
            bar.clear()
            dump.end(interrupted_of=len(found))
            return 130
    return dump.end()


def _shows_progress(options: Options) -> bool:
    """Whether to show progress: not if the batches are printed at a terminal."""
    return (options.verify and not options.deep and sys.stdout.isatty()) or output_is_a_file()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # reading it reports the reason


class _Dump:
    """Prints the files one after another and counts their defects."""

    def __init__(self, options: Options, bar: Progress) -> None:
        from ottla.cli.dump_printer import Printer

        self._options = options
        self._bar = bar
        self._files = 0
        self._out = sys.stdout
        self._style = Style.of(sys.stdout)
        self._printer = Printer(self._style, entries=options.deep or not options.verify)
        self._damaged = 0
        self._follows: tuple[Path, int] | None = None

    def file(self, found: Found, size: int) -> None:
        """Print one file of `size` bytes."""
        from ottla.tools.dump.files import dump_file
        from ottla.tools.dump.rows import damage

        if not self._options.json:
            self._write(self._printer.heading(str(found.path)))
        directory = found.path.parent
        follows = self._follows[1] if found.kind == "log" and self._follows and self._follows[0] == directory else None
        try:
            for row in dump_file(found, self._depth(found), follows):
                self._row(found, row)
                if row.kind == "batch":
                    self._bar.advance(row.fields["size"])
                    size -= row.fields["size"]
                if row.kind == "end" and found.kind == "log" and row.fields["next_offset"] is not None:
                    self._follows = (directory, row.fields["next_offset"])
        except OSError as error:
            self._row(found, damage(f"the file cannot be read: {error.strerror}"))
        self._files += 1
        self._bar.advance(max(0, size))

    def _depth(self, found: Found) -> Depth:
        from ottla.tools.dump.files import topic_of
        from ottla.tools.dump.record_text import TOPICS, meaning_for
        from ottla.tools.dump.segment import Depth

        kind = self._options.kind
        if kind is None:
            kind = "metadata" if found.kind == "metadata snapshot" else TOPICS.get(topic_of(found.path) or "", "data")
        return Depth(self._options.deep, self._options.verify, meaning_for(kind))

    def _row(self, found: Found, row: Row) -> None:
        self._damaged += row.kind == "damage"
        if not self._options.json:
            self._write(self._printer.text(row))
        elif self._options.deep or not self._options.verify or row.kind in ("damage", "warning", "end"):
            fields = {"file": str(found.path), "kind": row.kind, **_plain(row.fields)}
            self._write(json.dumps(fields, ensure_ascii=not self._out.isatty(), separators=(",", ":")) + "\n")

    def _write(self, text: str) -> None:
        if text:
            self._bar.clear()
            self._out.write(text)

    def end(self, interrupted_of: int | None = None) -> int:
        """Print the totals of a check, which an interrupt may have ended early; returns the exit code."""
        if self._options.verify and not self._options.json:
            found = f"{self._damaged:,} damaged places" if self._damaged != 1 else "1 damaged place"
            text = f"{units.plural(self._files, 'file')}, {found if self._damaged else 'nothing damaged'}"
            if interrupted_of is not None:
                text += f" (interrupted: {units.plural(interrupted_of - self._files, 'file')} not checked)"
            good = not self._damaged and interrupted_of is None
            self._write((self._style.green if good else self._style.red)(text) + "\n")
        return 1 if self._damaged and self._options.verify else 0


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Convert fields for JSON: bytes become text if they are UTF-8, else base64."""
    converted: dict[str, Any] = {}
    for name, value in fields.items():
        if name == "headers":
            converted[name] = [_plain({"name": key, "value": each}) for key, each in value]
        elif isinstance(value, bytes):
            try:
                converted[name] = value.decode()
            except UnicodeDecodeError:
                converted[f"{name}_base64"] = base64.b64encode(value).decode()
        elif name == "meaning":
            converted["record"] = value
        else:
            converted[name] = value
    return converted

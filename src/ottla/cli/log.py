"""Read the files of a log: segments, indices, checkpoints. Needs no broker and changes no file."""

from __future__ import annotations

import sys
from pathlib import Path

from ottla.cli import late
from ottla.cli.commands import Argument, Choice, Group, Option, Options
from ottla.cli.output import output_options
from ottla.common.failure import Failure, reading
from ottla.tools.progress import Progress, output_is_a_file

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
    found: list[late.Found] = []
    for path in options.paths:
        with reading(path):
            Path(path).stat()
            below = list(late.files_below(Path(path)))
        if not below:
            raise Failure(f"{path} is not a file of a log", exit_code=2)
        found += below
    sizes = [_size(each.path) for each in found]
    # Batches that are printed at a terminal show the progress themselves.
    shown = (options.verify and not options.deep and sys.stdout.isatty()) or output_is_a_file()
    bar = Progress("B", shown=shown, total=sum(sizes))
    files = late.Files(bar, deep=options.deep, verify=options.verify, as_json=options.json, kind=options.kind)
    with bar.cleared():
        try:
            for each, size in zip(found, sizes, strict=True):
                files.show(each, size)
        except KeyboardInterrupt:
            bar.clear()
            files.end(interrupted_of=len(found))
            return 130
    return files.end()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # reading it reports the reason

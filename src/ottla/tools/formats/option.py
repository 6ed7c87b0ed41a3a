"""The option `-f FORMAT` of `produce` and `consume`."""

from ottla.common.failure import Failure, failing_on
from ottla.tools.formats.template import Field, FormatError, Part, parse


def parse_format(text: str) -> tuple[Part, ...]:
    """Parse the format string of a command line; raises Failure with exit code 2 if it is wrong."""
    with failing_on(FormatError):
        parts = parse(text)
    if any(isinstance(part, Field) for part in parts):
        return parts
    # All records would be written as the same text.
    if text.lower() in ("json", "jsonl", "ndjson"):
        advice = "--json is the option for JSON lines."
    else:
        advice = r"It has the fields of a record, such as -f '%k=%v\n'; --json is the option for JSON lines."
    raise Failure(f"-f {text!r} has no field of a record", advice, exit_code=2)

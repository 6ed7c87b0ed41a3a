"""Print the table of APIs for docs/protocol.md: `python -m ottla.cli.protocol_table`."""

from ottla.broker.served import SERVED
from ottla.protocol.table import markdown_table


def main() -> None:
    """Print every API with the versions that are declared and served."""
    print(markdown_table(SERVED), end="")


if __name__ == "__main__":
    main()

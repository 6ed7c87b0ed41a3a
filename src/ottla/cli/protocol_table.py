"""Print the table of APIs for docs/protocol.md: `python -m ottla.cli.protocol_table`."""

from ottla.broker.served import SERVED
from ottla.protocol.table import markdown_table

HEAD = """\
# APIs and versions

Generated from the declarations in `src/ottla/protocol/messages/`.

- **Declared**: the versions of the message that Ottla knows: those of Kafka 4.3. Its clients may speak them to Kafka.
- **Flexible**: the versions with tagged fields (KIP-482).
- **Served**: the versions that the broker answers, and tells of when a client asks (ApiVersions). `-`: it does not.

"""


def main() -> None:
    """Print every API with its declared and served versions."""
    print(HEAD + markdown_table(SERVED), end="")


if __name__ == "__main__":
    main()

"""Print the table of APIs for docs/protocol.md: `python -m ottla.broker.protocol_table`."""

import sys

from ottla.broker.served import SERVED_WITH_TELEMETRY
from ottla.protocol.table import markdown_table

HEAD = """\
# APIs and versions

Generated from the declarations in `src/ottla/protocol/messages/`.

- **Declared**: the versions that Ottla can encode and decode, as in Kafka 4.3. Its clients may use them with Kafka.
- **Flexible**: the versions with tagged fields (KIP-482).
- **Served**: the versions that the broker serves and reports in ApiVersions; `-` if it does not serve the API. Only
  brokers with `ottla.metrics.listener` serve telemetry (71 and 72).

"""


def main() -> None:
    """Print every API with its declared and served versions."""
    sys.stdout.write(HEAD + markdown_table(SERVED_WITH_TELEMETRY))


if __name__ == "__main__":
    main()

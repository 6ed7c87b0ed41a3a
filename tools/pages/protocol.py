"""Print the table of APIs for docs/protocol.md: `python -m tools.pages.protocol`."""

import sys
from collections.abc import Mapping

from ottla.broker.served import SERVED_WITH_TELEMETRY
from ottla.protocol.registry import API

HEAD = """\
# APIs and versions

Generated from the declarations in `src/ottla/protocol/messages/`.

- **Declared**: the versions that Ottla can encode and decode, as in Kafka 4.3. Its clients may use them with Kafka.
- **Flexible**: the versions with tagged fields (KIP-482).
- **Served**: the versions that the broker serves and reports in ApiVersions; `-` if it does not serve the API. Only
  brokers with `ottla.metrics.listener` serve telemetry (71 and 72).

"""


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def markdown_table(served: Mapping[int, tuple[int, int]]) -> str:
    """A Markdown table of every API by key. `served` has the first and last served version of each API."""
    lines = ["| Key | API | Declared | Flexible | Served |", "|--:|---|---|---|---|"]
    for info in API.values():
        flexible = f"{info.flexible_from}+" if info.is_flexible(info.max_version) else "never"
        answered = _range(*served[info.key]) if info.key in served else "-"
        declared = _range(info.min_version, info.max_version)
        lines.append(f"| {info.key} | {info.name} | {declared} | {flexible} | {answered} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print every API with its declared and served versions."""
    sys.stdout.write(HEAD + markdown_table(SERVED_WITH_TELEMETRY))


if __name__ == "__main__":
    main()

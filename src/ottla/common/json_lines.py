"""Log records as JSON: one object in one line, for programs that collect logs."""

import json
import logging
from datetime import UTC, datetime

from ottla.common.log_lines import shorten


class JsonFormatter(logging.Formatter):
    """Formats `{"time": ..., "level": ..., "logger": ..., "message": ...}`; `time` is UTC, in RFC 3339.

    A record with an exception also has `exception` (its class) and `traceback`, a line of the request log `request`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Format a log record as one line."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        message = shorten(record.getMessage())
        request = getattr(record, "request", None)
        if request is not None:
            message = message.partition(": ")[0]  # the rest is the request as text
        fields: dict[str, object] = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": message,
        }
        if request is not None:
            fields["request"] = request
        if record.exc_info and record.exc_info[0] is not None:
            fields["exception"] = record.exc_info[0].__name__
            fields["traceback"] = self.formatException(record.exc_info)
        # Names that clients choose may have characters that break a line for some readers, so only ASCII is written.
        return json.dumps(fields)

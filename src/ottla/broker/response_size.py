"""The limit on the size of a response."""

from typing import Final

from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.frames import MAX_FRAME

# The four bytes of a frame's size count the response and its header.
MAX_RESPONSE_BYTES: Final = MAX_FRAME - 1024


def check_response_size(size: int) -> None:
    """Raise INVALID_REQUEST, which closes the connection, if the response does not fit into a frame."""
    if size > MAX_RESPONSE_BYTES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The response would exceed {MAX_RESPONSE_BYTES} bytes")

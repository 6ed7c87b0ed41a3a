"""`Survey`: goes over a segment's batches and checks them, compiled where that was built. See `_survey_fallback`.

Not among the other kernels, since only a broker that was not closed in order needs it.
"""

from typing import TYPE_CHECKING

from ottla.records._survey_fallback import CRC, FRAME, LOOK, MORE, OFFSET

if TYPE_CHECKING:
    from ottla.records._survey_fallback import Survey as Survey  # noqa: PLC0414 - exported
else:
    from ottla.records.kernels import choose

    Survey = choose("_survey").Survey

__all__ = ["CRC", "FRAME", "LOOK", "MORE", "OFFSET", "Survey"]

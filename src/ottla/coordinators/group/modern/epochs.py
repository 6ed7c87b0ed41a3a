"""The checks of a member's epoch."""

from __future__ import annotations

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2


def check_member_epoch(kind: str, received: int, current: int, previous: int, *, is_consistent: bool) -> str | None:
    """Return None if a heartbeat with the epoch `received` is valid, otherwise the message of FENCED_MEMBER_EPOCH.

    A member may (re)join at any time, with epoch 0. A member that sends its previous epoch did not receive the last
    response: it is valid if `is_consistent`, i.e. if the member does not use more than it was assigned.
    """
    if received in (JOIN_EPOCH, current) or (received == previous and received < current and is_consistent):
        return None
    size = "greater" if received > current else "smaller"
    return (
        f"The {kind} group member has a {size} member epoch ({received}) than the one known by the group coordinator"
        f" ({current}). The member must abandon all its partitions and rejoin."
    )

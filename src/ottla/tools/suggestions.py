"""The known word that a mistyped word probably stands for."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known word that is most similar to `word`; None if the similarity of each is below `cutoff`."""
    known = list(known)
    by_lower = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    if close:
        return by_lower[close[0]]
    inside = [name for name in known if len(word) > 2 and word.lower() in name.lower()]
    return inside[0] if len(inside) == 1 else None


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> tuple[str, ...]:
    """Return the advice for an unknown word: the nearest known word, or else `otherwise`; empty without either."""
    near = nearest(word, known)
    advice = f"Did you mean {near}?" if near else otherwise
    return (advice,) if advice else ()

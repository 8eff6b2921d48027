"""Seeds that depend on nothing but their place: run, problem, step, round and the like."""

import hashlib

_SEPARATOR = "\x1f"


def seed_of(*place: object) -> int:
    """Return a seed below 2^64 that is the same in every run and on every machine.

    Args:
        *place: What the seed may depend on, in an order of the caller's; each part counts by its text.
    """
    return int.from_bytes(hashlib.sha256(_SEPARATOR.join(map(str, place)).encode()).digest()[:8])

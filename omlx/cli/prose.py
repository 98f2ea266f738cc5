"""Text for the demo and the benchmarks: generated, so that nothing else has to ship. Same seed, same text."""

import random

_SUBJECTS = (
    "the build",
    "a worker",
    "the index",
    "every test",
    "the parser",
    "this service",
    "the cache",
    "a client",
)
_VERBS = ("reads", "keeps", "checks", "sends", "follows", "replaces", "reports", "opens", "joins", "skips")
_OBJECTS = (
    "the log",
    "a request",
    "each file",
    "the queue",
    "its config",
    "old entries",
    "the report",
    "two branches",
)
_TAILS = (
    "before it starts",
    "when nothing else runs",
    "after the last change",
    "unless told otherwise",
    "in the same order",
    "without asking twice",
    "once a day",
    "as the manual says",
)


def sentences(seed: int, count: int) -> str:
    """Return that many plain English sentences."""
    rng = random.Random(seed)  # noqa: S311 - text, not secrets
    lines = (
        f"{rng.choice(_SUBJECTS)} {rng.choice(_VERBS)} {rng.choice(_OBJECTS)} {rng.choice(_TAILS)}"
        for _ in range(count)
    )
    return " ".join(line[0].upper() + line[1:] + "." for line in lines)

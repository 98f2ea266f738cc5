"""Work: what a device stage asks the engine to do.

A device stage is a generator. It yields one piece of work at a time and is sent the result; it never touches a
device array itself. So the engine can interleave the pieces of many requests (and batch the decoding), a test can
answer them with a plain fake, and a chain can be dry-run.

    Open    -> Sequence      a sequence whose first `resume` tokens are restored from records
    Prefill -> None          run tokens [offset, end) through the model
    Decode  -> int           run the last token that was not run yet, return the next one; in company of others
    Capture -> list[dict]    copy computed KV out of the sequence, one mapping of records per range
    Wait    -> None          nothing, until something has happened
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Series
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from omlx.pipeline.request import Sampling
from omlx.store.record import Record
from omlx.types import RecordKind, Tokens


@dataclass(frozen=True, slots=True)
class Piece:
    """The first `used` tokens of a block's records, as restored."""

    used: int
    num_tokens: int
    records: Mapping[RecordKind, Record]


@dataclass(frozen=True, slots=True)
class Chances:
    """The log probability of a chosen token, and token and log probability of the likeliest in its place."""

    chosen: float
    likeliest: Series[tuple[int, float]] = ()


class Sequence(Protocol):
    """A running sequence, as stages see it."""

    @property
    def tokens(self) -> Tokens:
        """Return all tokens so far, prompt and answer: `(n,) int32`."""
        ...

    @property
    def prompt_tokens(self) -> int:
        """Return the length of the prompt."""
        ...

    @property
    def resumed(self) -> int:
        """Return how many tokens of the prompt were restored instead of run."""
        ...

    @property
    def device_s(self) -> dict[str, float]:
        """Return the seconds the device spent on this sequence: `restore`, `prefill`, `decode`."""
        ...

    @property
    def chances(self) -> "Chances | None":
        """Return how likely the token was that was decoded last; None unless `Open` asked for that."""
        ...

    @property
    def offset(self) -> int:
        """Return how many tokens have been run through the model: the KV that exists."""
        ...

    @property
    def capture_within(self) -> int | None:
        """Return after how many decoded tokens KV must be captured before a sliding layer drops it, or None."""
        ...


@dataclass(frozen=True, slots=True)
class Open:
    """Make a sequence of `tokens`, with `[0, resume)` restored from `pieces`.

    `num_likeliest`: tell the log probability of each chosen token, and of so many of the likeliest; None: do not.
    """

    model: str
    tokens: Tokens
    resume: int = 0
    pieces: Series[Piece] = ()
    sampling: Sampling = field(default_factory=Sampling)
    num_likeliest: int | None = None


@dataclass(frozen=True, slots=True)
class Prefill:
    """Run tokens `[sequence.offset, end)` through the model."""

    sequence: Sequence
    end: int


@dataclass(frozen=True, slots=True)
class Decode:
    """Run the one token that was not run yet, and choose the next. After the `last`, no more will be wanted."""

    sequence: Sequence
    last: bool = False


@dataclass(frozen=True, slots=True)
class Decoded:
    """What became of a `Decode`: the token, or the fault of this sequence alone."""

    token: int | None = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Capture:
    """Copy the KV of token ranges `[start, end)` out of the sequence, evaluated, in host and device form."""

    sequence: Sequence
    ranges: Series[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing until `ready` says so; other requests go on meanwhile."""

    ready: Callable[[], bool]


Work: TypeAlias = Open | Prefill | Decode | Capture | Wait

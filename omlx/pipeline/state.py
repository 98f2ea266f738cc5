"""State: what travels down the chain. Stages read and assign its fields by name.

`request` and `model` are there from the start; each of the others is assigned by exactly one stage.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from omlx.errors import CancelledError
from omlx.pipeline.cost import Plan
from omlx.pipeline.model import Model
from omlx.pipeline.request import Request
from omlx.pipeline.work import Piece, Sequence
from omlx.prefix.match import Match
from omlx.telemetry import Stopwatch
from omlx.text.delta import AnswerDelta, FinishReason
from omlx.text.normalize import Rewrite
from omlx.text.segment import Segment
from omlx.types import Tokens

#: Fields that exist before the first stage.
INITIAL_FIELDS = frozenset({"request", "model"})


@dataclass(frozen=True, slots=True)
class Restored:
    """What `fetch` brought: records for tokens `[0, resume)`, and how many tokens and bytes each tier gave."""

    resume: int = 0
    pieces: tuple[Piece, ...] = ()
    hot_tokens: int = 0
    cold_tokens: int = 0
    hot_bytes: int = 0
    cold_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What `decode` produced."""

    reason: FinishReason
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Written:
    """What `writeback` stored: the blocks of this request, and their bytes.

    `until` is the position up to which it has looked; `stopped` says that it gave up for this request.
    """

    blocks: int = 0
    nbytes: int = 0
    until: int = 0
    stopped: bool = False


@dataclass(eq=False)  # a request is itself alone; comparing arrays would raise
class State:
    """The mutable state of one request. A third-party stage may assign fields of other names too.

    Attributes:
        request: what the client asked for.
        model: the model that answers, as stages may see it.
        emit: takes a piece of the answer, for the client.
        announce: told when every check has passed and the prompt goes to the device.
        prompt: the request's prompt after `normalize`.
        rewrites: what `normalize` changed.
        text: the rendered prompt (`tokenize`), empty when the client sent tokens.
        starts: the character at which each token begins, `(n,) int32`.
        tokens: the prompt's tokens, `(n,) int32`.
        segments: its parts.
        match: what will be restored of its prefix, or None.
        plan: what will be restored and computed, and how long that should take.
        grid: a restore must end on a multiple of this many tokens; None: anywhere. A constant of the chain.
        restored: what was fetched.
        sequence: the running sequence.
        keep_until: tokens from here on are not to be stored; None stores all.
        answer: how it ended.
        written: what was stored.
        waited_for: how many tokens of the prompt another request was computing (`coalesce`).
        cancelled: the client has left.
        ended: nothing more will happen to the request.
    """

    request: Request
    model: Model
    emit: Callable[[AnswerDelta], None]
    announce: Callable[["State"], None]
    prompt: Any = None
    rewrites: tuple[Rewrite, ...] = ()
    text: str = ""
    starts: Tokens | None = None
    tokens: Tokens = field(default=None)  # type: ignore[arg-type]  # tokenize assigns it first
    segments: tuple[Segment, ...] = ()
    match: Match | None = None
    plan: Plan | None = None
    grid: int | None = None
    restored: Restored = Restored()
    sequence: Sequence = field(default=None)  # type: ignore[assignment]  # prefill assigns it first
    keep_until: int | None = None
    answer: Answer | None = None
    written: Written = Written()
    waited_for: int = 0
    cancelled: bool = False
    ended: bool = False
    watch: Stopwatch = field(default_factory=Stopwatch)

    def check_cancelled(self) -> None:
        """Raise CancelledError when the client has left."""
        if self.cancelled:
            raise CancelledError("the request was cancelled")


#: Fields of the state that are no business of the declarations: tools of the trade.
FREE_FIELDS = frozenset({"emit", "announce", "watch", "grid", "cancelled", "ended", "check_cancelled"})

"""A session turn by turn: where each prompt leaves the nearest earlier one, and what that cost. No cache is asked.

turn 1  ████████████
turn 2  ████████████▓▓▓▓      continues turn 1: nothing lost
turn 3  ███████░░░░░░░░░      parts from it at token 700: what came after that was computed for nothing
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from omlx.explain.difference import compare
from omlx.explain.dry import dry_run, dry_state
from omlx.pipeline.explanation import Difference
from omlx.pipeline.inflight import common_prefix
from omlx.pipeline.model import Model
from omlx.pipeline.request import Request
from omlx.pipeline.stage import Services, Stage
from omlx.pipeline.state import State
from omlx.stages.lookup import LookupStage


class Turn(msgspec.Struct, frozen=True):
    """One request of a session.

    Attributes:
        number: from 1.
        prompt_tokens: length of its prompt.
        against: the earlier turn with which it shares most; null for one that shares nothing.
        shared_tokens: how many tokens it shares with that one.
        difference: where it leaves it; null when it continues it.
    """

    number: int
    prompt_tokens: int
    against: int | None
    shared_tokens: int
    difference: Difference | None


class CauseCost(msgspec.Struct, frozen=True):
    """What one cause cost over a session."""

    name: str
    turns: int
    lost_tokens: int
    remedy: str


class Session(msgspec.Struct, frozen=True):
    """A session, turn by turn, and the causes that cost most, most first."""

    turns: tuple[Turn, ...]
    costs: tuple[CauseCost, ...]

    @property
    def prompt_tokens(self) -> int:
        """Return the tokens of all prompts."""
        return sum(turn.prompt_tokens for turn in self.turns)

    @property
    def shared_tokens(self) -> int:
        """Return how many of them an earlier prompt had in the same place."""
        return sum(turn.shared_tokens for turn in self.turns)


def prepare(stages: Sequence[Stage], request: Request, model: Model, services: Services) -> State:
    """Return a request's prompt as tokens and segments, with every rewrite of the chain; nothing is looked up."""
    state = dry_state(request, model)
    dry_run([stage for stage in stages if not isinstance(stage, LookupStage)], state, services)
    return state


def follow(states: Iterable[State], *, show_text: bool = False) -> Session:
    """Return how the prompts of a session follow from one another."""
    turns: list[Turn] = []
    seen: list[State] = []
    for state in states:
        turns.append(_turn(len(seen) + 1, state, seen, show_text=show_text))
        seen.append(state)
    return Session(tuple(turns), _costs(turns))


def _turn(number: int, state: State, earlier: Sequence[State], *, show_text: bool) -> Turn:
    """Return a turn against the earlier one that shares most with it; of equals, the latest."""
    shared = [common_prefix(state.tokens, other.tokens) for other in earlier]
    most = max(shared, default=0)
    if not most:
        return Turn(number, len(state.tokens), None, 0, None)
    nearest = len(shared) - 1 - shared[::-1].index(most)
    found = compare(state, earlier[nearest], show_text=show_text)
    return Turn(number, len(state.tokens), nearest + 1, most, found)


def _costs(turns: Iterable[Turn]) -> tuple[CauseCost, ...]:
    tokens: Counter[str] = Counter()
    count: Counter[str] = Counter()
    remedies: dict[str, str] = {}
    for turn in turns:
        if turn.difference is not None:
            cause = turn.difference.cause
            tokens[cause.name] += turn.difference.lost_tokens
            count[cause.name] += 1
            remedies[cause.name] = cause.remedy
    return tuple(CauseCost(name, count[name], lost, remedies[name]) for name, lost in tokens.most_common())

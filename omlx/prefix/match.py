"""Match: how much of a prompt can be restored, and from which records. Pure: values in, a plan out.

    tokens      0 ................................ matched ........ prompt
    kv          |-- block --|-- block --|-- used --|                 every token before the resume point
    window                  ....|-- last `window` tokens before it --|
    state                               ^ a snapshot exactly at it (a block's state is that of its end)
                                        resume <= limit

The resume point is the longest position for which every kind of layer has what it needs. A part that is
missing moves the point towards 0; it never leaves a restore with a hole. Each kind is covered on its own,
since blocks may overlap with different cuts and lose records of one kind only: a cover takes, at each
position, the block that reaches farthest (fewest pieces), and ends each piece where the next block begins.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from omlx.prefix.block import Block
from omlx.prefix.layout import Layout
from omlx.types import BlockName, Fingerprint, RecordKind, Tier

#: Which records of a block can be had, and from which tier.
Presence = Callable[[BlockName], Mapping[RecordKind, Tier]]


@dataclass(frozen=True, slots=True)
class Step:
    """A block whose first `shared` tokens (at least 1) stand in the prompt at the block's position."""

    block: Block
    shared: int

    @property
    def end(self) -> int:
        """Return the position up to which the block agrees with the prompt."""
        return self.block.start + self.shared


@dataclass(frozen=True, slots=True)
class Piece:
    """Records that a restore takes from one block: its tokens `[block.start, block.start + used)`.

    `tiers` names the record kinds to take, and where each is. Of the pieces that name `kv`, in order, the
    first begins at 0, each begins where the one before it ends, and the last ends at `resume`. Those that
    name `window` are contiguous too, and begin at or before `resume - window`. One piece names `state`; its
    block ends at `resume`.
    """

    block: Block
    used: int
    tiers: Mapping[RecordKind, Tier]


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Why a match is shorter than the tokens that agreed.

    `kind` is what is missing, None when only the limit stops it; `position` is how far it would have gone.
    """

    kind: RecordKind | None
    resume: int
    position: int

    def __str__(self) -> str:
        if self.kind is None and self.position > self.resume + 1:
            return f"whole chunks alone are restored: resumes at {self.resume}"
        if self.kind is None:
            return f"the last token of a prompt is always computed: resumes at {self.resume}"
        if self.kind == "kv":
            return f"no kv record holds token {self.resume}"
        if self.kind == "window":
            return f"window records before token {self.position} are gone: resumes at {self.resume}"
        return f"no state snapshot in ({self.resume}, {self.position}]"


@dataclass(frozen=True, slots=True)
class Match:
    """What a prompt can reuse.

    `resume` is where computing begins. `matched` tokens agreed with stored tokens, whatever records are left
    of them; `stored` of these need not be written again (like `resume`, but without the limit and the
    states). `hot_tokens + cold_tokens == resume`: a token is cold when a record that covers it came from
    disk. `steps` are all blocks that agreed, by start.
    """

    fingerprint: Fingerprint
    limit: int
    resume: int
    matched: int
    stored: int
    pieces: tuple[Piece, ...]
    hot_tokens: int
    cold_tokens: int
    shortfall: Shortfall | None
    steps: tuple[Step, ...]

    def parent(self, position: int) -> BlockName | None:
        """Return the block that holds the token before `position <= matched`.

        The parent of a block cut there.
        """
        holders = [step.block for step in self.steps if step.block.start < position <= step.end]
        if not holders and position > 0:
            raise ValueError(f"position {position} is past the {self.matched} tokens that matched")
        # The latest start: the nearest ancestor of all that were cut at this place.
        return max(holders, key=lambda block: block.start).name if holders else None


@dataclass(frozen=True, slots=True)
class _Edge:
    """Tokens `[start, end)` of a step whose record of one kind is present."""

    start: int
    end: int
    block: Block
    tier: Tier


def plan_match(
    fingerprint: Fingerprint, steps: Sequence[Step], layout: Layout, presence: Presence, limit: int
) -> Match:
    """Return the longest restore of at most `limit` tokens that needs no absent record."""
    kinds = layout.kinds()
    found = [(step, presence(step.block.name)) for step in steps]
    edges = {kind: _edges_of(kind, found) for kind in kinds}
    matched = max((step.end for step in steps), default=0)
    tokens_end = _reach(edges["kv"]) if "kv" in edges else matched
    window = layout.window_tokens()
    runs = _runs(edges["window"]) if "window" in edges else ((0, matched),)
    stored = _last_open(runs, window, tokens_end) if kinds else 0
    open_end = _last_open(runs, window, min(tokens_end, limit)) if kinds else 0
    snapshots = {edge.end for edge in edges.get("state", ()) if edge.end == edge.block.end}
    resume = open_end
    if "state" in edges:
        resume = max((p for p in snapshots if p <= open_end and _is_open(runs, window, p)), default=0)
    pieces = _pieces(edges, resume, window) if resume else ()
    cold_tokens = _cold_tokens(pieces)
    return Match(
        fingerprint=fingerprint,
        limit=limit,
        resume=resume,
        matched=matched,
        stored=stored,
        pieces=pieces,
        hot_tokens=resume - cold_tokens,
        cold_tokens=cold_tokens,
        shortfall=_shortfall(resume, matched, limit, tokens_end, open_end),
        steps=tuple(steps),
    )


def _edges_of(kind: RecordKind, found: Iterable[tuple[Step, Mapping[RecordKind, Tier]]]) -> tuple[_Edge, ...]:
    """Return the steps whose record of that kind is present, by start."""
    edges = [
        _Edge(step.block.start, step.end, step.block, tiers[kind]) for step, tiers in found if kind in tiers
    ]
    return tuple(sorted(edges, key=lambda edge: edge.start))


def _runs(edges: Iterable[_Edge]) -> tuple[tuple[int, int], ...]:
    """Return the union of the edges as disjoint intervals, ascending."""
    runs: list[tuple[int, int]] = []
    for edge in edges:
        if runs and edge.start <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(runs[-1][1], edge.end))
        else:
            runs.append((edge.start, edge.end))
    return tuple(runs)


def _reach(edges: Iterable[_Edge]) -> int:
    """Return the end of the run that begins at 0."""
    runs = _runs(edges)
    return runs[0][1] if runs and runs[0][0] == 0 else 0


def _first_open(run: tuple[int, int], window: int) -> int:
    """Return the first position that a run of window records can resume."""
    return 0 if run[0] == 0 else run[0] + window


def _is_open(runs: Iterable[tuple[int, int]], window: int, position: int) -> bool:
    """Return whether one run holds the last `min(position, window)` tokens before the position."""
    return any(_first_open(run, window) <= position <= run[1] for run in runs)


def _last_open(runs: Iterable[tuple[int, int]], window: int, limit: int) -> int:
    """Return the longest position, at most `limit`, that some run of window records can resume."""
    ends = (min(run[1], limit) for run in runs if _first_open(run, window) <= min(run[1], limit))
    return max(ends, default=0)


def _pieces(edges: Mapping[RecordKind, tuple[_Edge, ...]], resume: int, window: int) -> tuple[Piece, ...]:
    """Return what to take for a resume at `resume > 0`, by start; one piece for kinds that take the same."""
    taken: dict[tuple[int, int, BlockName], tuple[Block, dict[RecordKind, Tier]]] = {}
    begins: dict[RecordKind, int] = {"kv": 0, "window": max(0, resume - window)}
    for kind, kind_edges in edges.items():
        if kind == "state":
            chosen = [(_snapshot(kind_edges, resume, taken), resume)]
        else:
            chosen = _cover(kind_edges, begins[kind], resume)
        for edge, end in chosen:
            key = (edge.start, end, edge.block.name)
            taken.setdefault(key, (edge.block, {}))[1][kind] = edge.tier
    return tuple(Piece(taken[key][0], key[1] - key[0], taken[key][1]) for key in sorted(taken))


def _cover(edges: Sequence[_Edge], begin: int, end: int) -> list[tuple[_Edge, int]]:
    """Return edges that cover `[begin, end)`, each with the position where the next one begins."""
    chosen: list[_Edge] = []
    position, at = begin, 0
    best: _Edge | None = None
    while position < end:
        while at < len(edges) and edges[at].start <= position:
            if best is None or _farther(edges[at], best):
                best = edges[at]
            at += 1
        if best is None or best.end <= position:
            raise AssertionError(f"tokens [{begin}, {end}) are not covered at {position}")
        chosen.append(best)
        position = best.end
    ends = [edge.start for edge in chosen[1:]] + [end]
    return list(zip(chosen, ends, strict=True))


def _farther(edge: _Edge, best: _Edge) -> bool:
    return (edge.end, edge.tier == "hot") > (best.end, best.tier == "hot")


def _snapshot(
    edges: Iterable[_Edge],
    position: int,
    taken: Mapping[tuple[int, int, BlockName], object],
) -> _Edge:
    """Return an edge whose state is that of `position`: from a block that is taken anyway, else from RAM."""
    candidates = [edge for edge in edges if edge.end == position == edge.block.end]
    return max(
        candidates,
        key=lambda edge: ((edge.start, edge.end, edge.block.name) in taken, edge.tier == "hot"),
    )


def _cold_tokens(pieces: Iterable[Piece]) -> int:
    """Return how many tokens lie in cold pieces; tokens before the first piece count with it."""
    total, position = 0, 0
    for index, piece in enumerate(pieces):
        start = 0 if index == 0 else piece.block.start
        end = piece.block.start + piece.used
        if "cold" in piece.tiers.values() and end > position:
            total += end - max(start, position)
            position = end
    return total


def _shortfall(resume: int, matched: int, limit: int, tokens_end: int, open_end: int) -> Shortfall | None:
    if resume == matched:
        return None
    if resume < open_end:
        return Shortfall("state", resume, open_end)
    if open_end < min(tokens_end, limit):
        return Shortfall("window", resume, min(tokens_end, limit))
    if tokens_end <= limit:
        return Shortfall("kv", resume, matched)
    return Shortfall(None, resume, matched)

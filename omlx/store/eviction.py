"""Eviction: which records go when room is needed. Pure: residents in, keys out; the tiers carry it out.

A chain is useful from its root on, so a block goes only when nothing that continues it is left. In this
order:

0. Orphans, which are blocks of models that are configured no more, and what has expired: not used for longer
   than the age limit.
1. `window` records that no likely resume needs. Likely resume points are the ends of chains and the places
   where chains branch; the last `window` tokens before them matter, and as many again, since a prompt that
   leaves a chain does so shortly before its end.
2. `state` records in the middle of a chain that has a later one, no less protected; the snapshot that stands
   closest behind the one before it goes first, so that what remains is sparse: its loss makes a branch recompute
   fewest tokens.
3. Whole blocks, leaves before roots, least recently used first.

Scan resistance, after segmented LRU (Karedla, Love, Wherry: Caching strategies to improve disk system
performance, 1994): blocks that were used again since they were written are protected, most recently used
first, up to a share of the budget. The rest is on probation. A one-off prompt, however long, displaces only
what is on probation; what then does not fit is refused. The segments are computed, not kept: they follow from
use counts and access times, which also survive a restart.

A path is touched tail first, head last, so an ancestor is never older than its descendants, and the protected
blocks are whole heads of chains.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from omlx.types import BlockName, RecordKind


@dataclass(frozen=True, slots=True)
class Cost:
    """What a record holds."""

    bytes: int
    arrays: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.bytes + other.bytes, self.arrays + other.arrays)

    def covers(self, need: "Cost") -> bool:
        """Return whether freeing this much is enough."""
        return self.bytes >= need.bytes and self.arrays >= need.arrays


@dataclass(frozen=True, slots=True)
class Resident:
    """A block as its tier sees it: place in the tree, last use, further uses, and the records held.

    An `orphan` is of a model that nobody asks for any more; an `expired` block was not used for too long.
    """

    name: BlockName
    parent: BlockName | None
    start: int
    end: int
    accessed: float
    uses: int
    pinned: bool
    window: int
    records: Mapping[RecordKind, Cost]
    orphan: bool = False
    expired: bool = False

    @property
    def unwanted(self) -> bool:
        """Return whether it goes before everything else."""
        return self.orphan or self.expired

    @property
    def cost(self) -> Cost:
        """Return what all records of the block hold."""
        return sum(self.records.values(), Cost(0))


@dataclass(frozen=True, slots=True)
class Demand:
    """Room that is needed, for a newcomer of that many bytes under that budget.

    `keep` is the path of the newcomer, whose blocks must not make way for it.
    """

    need: Cost
    budget_bytes: int
    newcomer_bytes: int = 0
    keep: Collection[BlockName] = ()
    protected_share: float = 0.5


Key = tuple[BlockName, RecordKind]


def plan_eviction(residents: Collection[Resident], demand: Demand) -> tuple[Key, ...] | None:
    """Return the records to drop, in order, so that the need is covered; None when it cannot be."""
    tree = _Tree({resident.name: resident for resident in residents})
    freed, chosen = Cost(0), []
    for name, kind in _candidates(tree, demand):
        if freed.covers(demand.need):
            break
        chosen.append((name, kind))
        freed += tree.residents[name].records[kind]
    return tuple(chosen) if freed.covers(demand.need) else None


def plan_expiry(residents: Collection[Resident]) -> tuple[Key, ...]:
    """Return the records that have expired, leaves first; what something in use continues stays."""
    tree = _Tree({resident.name: resident for resident in residents})
    spared = {resident.name for resident in residents if not resident.expired}
    return tuple(
        (name, kind) for name in _leaves_first(tree, spared) for kind in tree.residents[name].records
    )


def _candidates(tree: "_Tree", demand: Demand) -> Iterator[Key]:
    taken: set[Key] = set()
    in_use = {*demand.keep, *(name for name, resident in tree.residents.items() if not resident.unwanted)}
    for name in _leaves_first(tree, in_use):
        for kind in tree.residents[name].records:
            taken.add((name, kind))
            yield name, kind
    protected = _protected(tree.residents.values(), demand)
    for key in (*_idle_windows(tree), *_crowded_states(tree, protected)):
        if key not in taken:
            taken.add(key)
            yield key
    spared = {*demand.keep, *protected}
    for name in _leaves_first(tree, spared):
        for kind in tree.residents[name].records:
            if (name, kind) not in taken:
                yield name, kind


@dataclass(slots=True)
class _Tree:
    """Residents with their links; a block whose parent is not resident is a root here."""

    residents: Mapping[BlockName, Resident]
    children: dict[BlockName, list[Resident]] = field(init=False)

    def __post_init__(self) -> None:
        self.children = {}
        for resident in self.residents.values():
            if resident.parent is not None and resident.parent in self.residents:
                self.children.setdefault(resident.parent, []).append(resident)

    def resume_points(self, resident: Resident) -> set[int]:
        """Return likely resume points inside `(start, end]`.

        The end of a chain, and where others branch off.
        """
        children = self.children.get(resident.name, [])
        if len(children) == 1 and children[0].start == resident.end:
            return set()
        return {resident.end, *(child.start for child in children)}

    def resumes(self, resident: Resident) -> int:
        """Return how often a use ended at this block: a use of its children is one of it, too."""
        return resident.uses - sum(child.uses for child in self.children.get(resident.name, []))

    def path(self, resident: Resident) -> Iterator[Resident]:
        """Yield the resident and its resident ancestors, tail first."""
        at: Resident | None = resident
        while at is not None:
            yield at
            at = None if at.parent is None else self.residents.get(at.parent)


def _idle_windows(tree: _Tree) -> list[Key]:
    """Return window records that lie too far before any likely resume point, LRU first."""
    holders = [r for r in tree.residents.values() if "window" in r.records]
    if not holders:
        return []
    needed: set[BlockName] = set()
    for resident in tree.residents.values():
        for point in tree.resume_points(resident):
            for ancestor in tree.path(resident):
                if ancestor.end <= point - 2 * resident.window:
                    break
                needed.add(ancestor.name)
    idle = [r for r in holders if r.name not in needed and not r.pinned]
    return [(r.name, "window") for r in sorted(idle, key=lambda r: r.accessed)]


def _crowded_states(tree: _Tree, protected: Collection[BlockName]) -> list[Key]:
    """Return states inside a chain that has a later state, smallest distance to the one before it first.

    A protected state goes only for a later one that is protected too: a new one may be gone soon. One that was
    resumed from more than once is where others branch off, whether their branches are still here or not.
    """
    holders = [r for r in tree.residents.values() if "state" in r.records]
    followed = _followed(tree, holders)
    safely = _followed(tree, [r for r in holders if r.name in protected])
    crowded = [
        r
        for r in holders
        if r.name in (safely if r.name in protected else followed)
        and not r.pinned
        and not tree.resume_points(r) & {r.end}
        and tree.resumes(r) < 2
    ]
    return [(r.name, "state") for r in sorted(crowded, key=lambda r: (_gap(tree, r), r.accessed))]


def _followed(tree: _Tree, residents: Iterable[Resident]) -> set[BlockName]:
    """Return the ancestors of these blocks."""
    followed: set[BlockName] = set()
    for resident in residents:
        for ancestor in _above(tree, resident):
            if ancestor.name in followed:
                break
            followed.add(ancestor.name)
    return followed


def _above(tree: _Tree, resident: Resident) -> Iterator[Resident]:
    path = tree.path(resident)
    next(path)
    return path


def _gap(tree: _Tree, resident: Resident) -> int:
    """Return the tokens between the state before this one (or position 0) and this one."""
    for ancestor in _above(tree, resident):
        if "state" in ancestor.records and ancestor.end < resident.end:
            return resident.end - ancestor.end
    return resident.end


def _protected(residents: Iterable[Resident], demand: Demand) -> set[BlockName]:
    """Return the blocks used again, most recently used first, up to the protected share.

    The share shrinks when the newcomer alone needs more than the rest.
    """
    share = int(demand.protected_share * demand.budget_bytes)
    room = min(share, demand.budget_bytes - demand.newcomer_bytes)
    chosen: set[BlockName] = set()
    for resident in sorted((r for r in residents if r.uses and not r.unwanted), key=lambda r: -r.accessed):
        room -= resident.cost.bytes
        if room < 0:
            break
        chosen.add(resident.name)
    return chosen


def _leaves_first(tree: _Tree, spared: Collection[BlockName]) -> Iterator[BlockName]:
    """Yield blocks that may go: those without resident children, least recently used first.

    Parents follow.
    """
    waiting = {name: len(children) for name, children in tree.children.items()}
    heap = [
        (r.accessed, -r.end, r.name)
        for r in tree.residents.values()
        if not waiting.get(r.name) and not r.pinned and r.name not in spared
    ]
    heapq.heapify(heap)
    while heap:
        name = heapq.heappop(heap)[2]
        yield name
        parent = tree.residents[name].parent
        if parent is None or parent not in tree.residents:
            continue
        waiting[parent] -= 1
        resident = tree.residents[parent]
        if not waiting[parent] and not resident.pinned and parent not in spared:
            heapq.heappush(heap, (resident.accessed, -resident.end, parent))

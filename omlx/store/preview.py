"""Preview: what a tier would evict for newcomers, asked before anything is written. Pure; nothing is evicted.

The planner is the one that the tiers use. Tiers make room block by block, and the cold tier for a little more than
it needs, so the preview of many blocks at once can differ from what happens by the last few records.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from omlx.store.eviction import Cost, Demand, Key, Resident, plan_eviction
from omlx.types import BlockName, Tier


@dataclass(frozen=True, slots=True)
class TierView:
    """What a tier holds and may hold. `held` and `budget` count everything, `residents` what could go."""

    tier: Tier
    residents: Sequence[Resident]
    held: Cost
    budget: Cost
    protected_share: float


@dataclass(frozen=True, slots=True)
class Preview:
    """The records that would go, or that there are not enough of them."""

    evicted: tuple[Key, ...] = ()
    nbytes: int = 0
    refused: bool = False


def preview(view: TierView, newcomers: Sequence[Cost], keep: Collection[BlockName]) -> Preview:
    """Return what would go for newcomers, each one block; `keep` are the blocks that they continue."""
    total = sum(newcomers, Cost(0))
    over = Cost(
        max(0, view.held.bytes + total.bytes - view.budget.bytes),
        max(0, view.held.arrays + total.arrays - view.budget.arrays),
    )
    if not (over.bytes or over.arrays):
        return Preview()
    largest = max(cost.bytes for cost in newcomers)
    demand = Demand(over, view.budget.bytes, largest, keep, view.protected_share)
    plan = plan_eviction(view.residents, demand)
    if plan is None:
        return Preview(refused=True)
    costs = {resident.name: resident.records for resident in view.residents}
    return Preview(plan, sum(costs[name][kind].bytes for name, kind in plan))

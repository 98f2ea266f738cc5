"""What is evicted, and in which order. Values only."""

import random
from dataclasses import replace

from omlx.store.eviction import Cost, Demand, Resident, plan_eviction
from tests.sequences import OTHER_MODEL, branch, chain, even


def resident(block, accessed, uses=0, window=0, pinned=False, **kinds):
    """Return a resident that holds records of these sizes."""
    records = {kind: Cost(size, 1) for kind, size in (kinds or {"kv": 10}).items()}
    return Resident(block.name, block.parent, block.start, block.end, accessed, uses, pinned, window, records)


def names(plan):
    """Return the names in a plan."""
    return [name for name, _ in plan]


def test_leaves_go_before_roots():
    """B11: a chain written head first, so that its head is the oldest, still loses its tail first."""
    blocks = chain(range(80), even(5))
    held = [resident(b, accessed=i) for i, b in enumerate(blocks)]
    plan = plan_eviction(held, Demand(Cost(25), 50))
    assert [blocks[4].name, blocks[3].name, blocks[2].name] == names(plan)


def test_least_recently_used_chain_goes_first():
    """Of two chains, the one that was used longer ago loses its tail first."""
    old, new = chain(range(48), even(3)), chain(range(100, 148), even(3))
    held = [resident(b, accessed=i) for i, b in enumerate([*old, *new])]
    assert [b.name for b in (*old[::-1], new[2])] == names(plan_eviction(held, Demand(Cost(40), 60)))


def test_path_of_the_newcomer_stays():
    """What a new block continues never goes for it; when nothing else can, there is no plan."""
    blocks = chain(range(48), even(3))
    held = [resident(b, accessed=i) for i, b in enumerate(blocks)]
    assert plan_eviction(held, Demand(Cost(1), 30, keep={b.name for b in blocks})) is None
    assert () == plan_eviction(held, Demand(Cost(0), 30))


def test_pinned_blocks_and_their_ancestors_stay():
    """A pinned block stays, and so does everything before it."""
    blocks = chain(range(64), even(4))
    held = [resident(b, accessed=i, pinned=i == 2) for i, b in enumerate(blocks)]
    assert [blocks[3].name] == names(plan_eviction(held, Demand(Cost(10), 40)))
    assert plan_eviction(held, Demand(Cost(11), 40)) is None


def test_one_off_prompt_does_not_displace_what_was_used_again():
    """A long prompt that is used once takes what is on probation, and no more."""
    used = chain(range(64), even(4))
    once = chain(range(100, 196), even(6))
    held = [resident(b, accessed=i, uses=1) for i, b in enumerate(used)]
    held += [resident(b, accessed=50 + i) for i, b in enumerate(once)]
    assert [b.name for b in once[::-1]] == names(plan_eviction(held, Demand(Cost(60), 100)))
    assert plan_eviction(held, Demand(Cost(61), 100)) is None


def test_protection_is_bounded():
    """What was used again is protected up to a share of the budget, the least recently used of it not."""
    first, second = chain(range(64), even(4)), chain(range(100, 164), even(4))
    held = [resident(b, accessed=10 - i, uses=1) for i, b in enumerate(first)]
    held += [resident(b, accessed=30 - i, uses=1) for i, b in enumerate(second)]
    assert [b.name for b in first[::-1]] == names(plan_eviction(held, Demand(Cost(40), 80)))
    assert plan_eviction(held, Demand(Cost(41), 80)) is None


def test_old_window_records_go_first():
    """Window records far before the end of a chain go before anything else, and before older chains."""
    old, long = chain(range(100, 116), [16]), chain(range(160), even(10))
    held = [resident(old[0], accessed=0)]
    held += [resident(b, accessed=1 + i, window=16) for i, b in enumerate(long)]
    held = [
        Resident(r.name, r.parent, r.start, r.end, r.accessed, 0, False, r.window,
                 {"kv": Cost(10), **({"window": Cost(10)} if r.window else {})})
        for r in held
    ]  # fmt: skip
    plan = plan_eviction(held, Demand(Cost(90), 300))
    assert [(b.name, "window") for b in long[:8]] == list(plan[:8])
    assert (old[0].name, "kv") == plan[8]


def test_window_records_before_a_branch_stay():
    """Where chains branch, the window records before the branch are needed to go on from there."""
    trunk = chain(range(128), even(8))
    fork = branch([*range(48), *range(900, 932)], 48, [64, 80], trunk[2])
    held = [
        Resident(b.name, b.parent, b.start, b.end, i, 0, False, 16, {"window": Cost(10)})
        for i, b in enumerate([*trunk, *fork])
    ]
    plan = plan_eviction(held, Demand(Cost(40), 300))
    assert [trunk[0].name, trunk[3].name, trunk[4].name, trunk[5].name] == names(plan)


def test_states_thin_out():
    """B11: snapshots inside a chain go first, those that stand closest to the one before.

    Branches keep theirs.
    """
    trunk = chain(range(200), [100, 110, 120, 180, 200])
    fork = branch([*range(180), *range(900, 920)], 180, [200], trunk[3])
    held = [resident(b, accessed=i, kv=10, state=50) for i, b in enumerate([*trunk, *fork])]
    plan = plan_eviction(held, Demand(Cost(150), 1000))
    assert [(b.name, "state") for b in (trunk[1], trunk[2], trunk[0])] == list(plan)


def test_no_record_goes_twice():
    """When everything has to go, every record is named once."""
    blocks = chain(range(160), even(10))
    held = [
        Resident(b.name, b.parent, b.start, b.end, i, 0, False, 16, dict.fromkeys(("kv", "window"), Cost(10)))
        for i, b in enumerate(blocks)
    ]
    plan = plan_eviction(held, Demand(Cost(200), 1000))
    assert 20 == len(plan) == len(set(plan))


def test_arrays_are_counted_too():
    """A need for arrays alone is covered as one for bytes is."""
    blocks = chain(range(48), even(3))
    held = [resident(b, accessed=i) for i, b in enumerate(blocks)]
    assert 2 == len(plan_eviction(held, Demand(Cost(0, 2), 1000)))


def test_plans_leave_no_hole():
    """Whatever is asked of a random forest, what remains of it has no block whose parent went."""
    rng = random.Random(7)
    for _ in range(60):
        blocks = chain(range(64), even(4))
        for _ in range(rng.randrange(8)):
            parent = rng.choice(blocks)
            at = rng.randrange(parent.start, parent.end) + 1
            tokens = [*([0] * at), *(rng.randrange(1000, 9000) for _ in range(8))]
            blocks += branch(tokens, at, [at + 8], parent)
        held = [resident(b, rng.random(), rng.randrange(2)) for b in blocks]
        need = rng.randrange(10 * len(blocks))
        plan = plan_eviction(held, Demand(Cost(need), 10 * len(blocks), protected_share=rng.random()))
        left = {b.name for b in blocks} - set(names(plan or ()))
        assert all(b.parent is None or b.parent in left for b in blocks if b.name in left)
        assert plan is None or 10 * len(plan) >= need


def test_orphans_go_first():
    """I4: blocks of a model that is in use no more go before anything else, however often they were used."""
    ours, theirs = chain(range(48), even(3)), chain(range(48), even(3), OTHER_MODEL)
    held = [resident(b, accessed=i) for i, b in enumerate(ours)]
    held += [replace(resident(b, accessed=50 + i, uses=9), orphan=True) for i, b in enumerate(theirs)]
    assert [b.name for b in (*theirs[::-1], ours[2])] == names(plan_eviction(held, Demand(Cost(40), 60)))


def test_an_orphan_that_is_pinned_or_continued_stays():
    """I4: being an orphan is no reason to leave a hole, or to take what is held."""
    theirs = chain(range(64), even(4), OTHER_MODEL)
    held = [
        replace(
            resident(b, accessed=i, pinned=i == 1), orphan=True, records={"kv": Cost(10), "window": Cost(5)}
        )
        for i, b in enumerate(theirs)
    ]
    keys = [(b.name, kind) for b in (theirs[3], theirs[2]) for kind in ("kv", "window")]
    assert keys == list(plan_eviction(held, Demand(Cost(30), 40)))
    assert plan_eviction(held, Demand(Cost(46), 60)) is None

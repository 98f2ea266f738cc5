"""The planner of turns: who begins, what is loaded, what makes room."""

import random
from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from omlx.runtime.turns import MAX_OVERTAKEN, Resident, Scene, Turn, Waiting, plan_turn

SIZES = {"a": 4, "b": 5, "c": 3, "d": 9}
ROOM = 10


def waiting(models: str, **overtaken: int) -> tuple[Waiting, ...]:
    """Return requests for models, in the order of their names."""
    return tuple(Waiting(n, model, overtaken.get(model, 0)) for n, model in enumerate(models))


def scene(*residents: Resident, **options) -> Scene:
    """Return a scene with room for ten bytes and four slots."""
    return Scene(**{"residents": residents, "sizes": SIZES, "free_slots": 4, "room_bytes": ROOM, **options})


def test_a_model_is_loaded_for_its_first_request():
    """A model that fits is loaded for the request that came first; others wait for their turn."""
    assert "c" == plan_turn(scene(waiting=waiting("cab"))).load


def test_one_load_serves_all_that_wait():
    """F5b: while a model loads, no request begins on it, and it is not loaded again."""
    plan = plan_turn(scene(waiting=waiting("aaaaaaaaaa"), loading="a"))
    assert ((), None) == (plan.begin, plan.load)


def test_requests_begin_in_order_as_far_as_there_are_slots():
    """Requests of a loaded model begin first come, first served."""
    assert (0, 1) == plan_turn(scene(Resident("a", 4), waiting=waiting("aaa"), free_slots=2)).begin


def test_the_loaded_model_goes_first_and_is_kept_for_it():
    """Requests for the loaded model begin before one that needs a switch, and the model stays for them."""
    plan = plan_turn(scene(Resident("d", 9), waiting=waiting("bddd")))
    assert ((1, 2, 3), None, ()) == (plan.begin, plan.load, plan.unload)


def test_who_waits_for_a_switch_is_overtaken_so_often_and_no_more():
    """After enough later requests have begun, no more begin on a model that has to go, and it goes when it is free."""
    enough = waiting("bddd", b=MAX_OVERTAKEN - 1)
    assert (1,) == plan_turn(scene(Resident("d", 9), waiting=enough)).begin
    held = plan_turn(scene(Resident("d", 9, leases=1), waiting=waiting("bdd", b=MAX_OVERTAKEN)))
    assert ((), ()) == (held.begin, held.unload)
    free = plan_turn(scene(Resident("d", 9), waiting=waiting("bdd", b=MAX_OVERTAKEN)))
    assert ((), ("d",)) == (free.begin, free.unload)


def test_who_does_not_stand_in_the_way_goes_on():
    """A model that need not make way serves its requests, however long another one waits."""
    residents = (Resident("c", 3, used_s=2.0), Resident("a", 4, leases=1, used_s=1.0))
    plan = plan_turn(scene(*residents, waiting=waiting("bac", b=MAX_OVERTAKEN)))
    assert ((1,), ("c",)) == (plan.begin, plan.unload)


def test_the_least_recently_used_makes_room():
    """Of models that are not in use, the one goes that was not used for longest."""
    residents = (Resident("a", 4, used_s=2.0), Resident("c", 3, used_s=1.0))
    assert ("c",) == plan_turn(scene(*residents, waiting=waiting("b"))).unload


def test_none_goes_that_need_not():
    """A model that was chosen first stays when the next one makes room enough alone."""
    residents = (Resident("c", 1, used_s=1.0), Resident("a", 8, used_s=2.0))
    assert ("a",) == plan_turn(scene(*residents, waiting=waiting("b"))).unload


def test_a_pinned_model_stays():
    """Neither for room nor for being idle is a pinned model unloaded."""
    pinned = Resident("d", 9, pinned=True, idle_s=1.0)
    plan = plan_turn(scene(pinned, waiting=waiting("b"), now_s=100.0))
    assert ((), None) == (plan.unload, plan.load)


def test_who_came_before_keeps_its_model():
    """A model stays for a request that came before the one that needs its room, though there is no slot for it yet."""
    plan = plan_turn(scene(Resident("d", 9), waiting=waiting("db"), free_slots=0))
    assert ((), ()) == (plan.begin, plan.unload)


def test_all_that_go_go_together():
    """While one model that has to go is in use, those that would go with it are kept."""
    residents = (Resident("a", 4), Resident("b", 5, leases=1))
    assert () == plan_turn(scene(*residents, waiting=waiting("d"))).unload


def test_idle_models_go():
    """A model goes when nobody has used it for its time, unless somebody is waiting for it."""
    idle = Resident("a", 4, used_s=10.0, idle_s=5.0)
    assert () == plan_turn(scene(idle, now_s=14.9)).unload
    assert ("a",) == plan_turn(scene(idle, now_s=15.0)).unload
    assert () == plan_turn(scene(idle, now_s=15.0, waiting=waiting("a"), free_slots=0)).unload
    assert () == plan_turn(scene(replace(idle, leases=1), now_s=15.0)).unload


class World:
    """Carry out what the planner says, with no time between, and hold what must always be true."""

    def __init__(self, slots: int, pinned: frozenset[str]) -> None:
        self.slots, self.pinned = slots, pinned
        self.residents: dict[str, Resident] = {}
        self.waiting: list[Waiting] = []
        self.running: list[Waiting] = []
        self.unloading: set[str] = set()
        self.loading: str | None = None
        self.clock = 0
        self.switches = 0
        self.begun: list[Waiting] = []

    def scene(self) -> Scene:
        leases = Counter(each.model for each in self.running)
        residents = tuple(replace(each, leases=leases[name]) for name, each in self.residents.items())
        return scene(
            *residents,
            waiting=tuple(self.waiting),
            free_slots=self.slots - len(self.running),
            loading=self.loading,
            unloading=frozenset(self.unloading),
            now_s=float(self.clock),
        )

    def step(self) -> Turn:
        self.clock += 1
        before = self.scene()
        plan = plan_turn(before)
        leases = {each.name: each.leases for each in before.residents}
        for each in [each for each in self.waiting if each.number in plan.begin]:
            assert each.model in self.residents
            assert each.model not in self.unloading
            self.waiting.remove(each)
            self.running.append(each)
            self.begun.append(each)
            self.residents[each.model] = replace(self.residents[each.model], used_s=float(self.clock))
        for name in plan.unload:
            assert not leases[name]
            assert not any(each.model == name for each in self.running)
            assert name not in self.pinned
            self.unloading.add(name)
        if plan.load:
            assert self.loading is None
            assert plan.load not in self.residents
            self.loading = plan.load
            self.switches += 1
        self.waiting = [
            replace(each, overtaken=each.overtaken + plan.overtaking) if each.number == plan.stuck else each
            for each in self.waiting
        ]
        held = sum(each.nbytes for each in self.residents.values())
        assert held + (SIZES[self.loading] if self.loading else 0) <= ROOM
        assert len(self.running) <= self.slots
        assert all(each.overtaken <= MAX_OVERTAKEN for each in self.waiting)
        return plan

    def happen(self, rng: random.Random) -> bool:
        """Let something that is under way end; False when nothing is."""
        options = (
            ["load"] * bool(self.loading) + ["unload"] * bool(self.unloading) + ["end"] * bool(self.running)
        )
        if not options:
            return False
        match rng.choice(options):
            case "load":
                name = self.loading
                self.residents[name] = Resident(
                    name, SIZES[name], used_s=float(self.clock), pinned=name in self.pinned
                )
                self.loading = None
            case "unload":
                del self.residents[self.unloading.pop()]
            case "end":
                self.running.remove(rng.choice(self.running))
        return True


@settings(max_examples=200, deadline=None)
@given(
    models=st.lists(st.sampled_from("abcd"), max_size=40),
    slots=st.integers(1, 4),
    pin=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_whatever_comes_all_are_served(models, slots, pin, seed):
    """Whatever comes in whatever order, room is kept, nobody is overtaken too often, and everybody begins.

    Requests of one model begin in the order in which they came.
    """
    # d does not fit beside a pinned one
    models = [model for model in models if not (pin and model == "d")]
    world, rng, number = World(slots, frozenset("c" if pin else "")), random.Random(seed), 0
    arrivals = list(models)
    for _ in range(10_000):
        if arrivals and rng.random() < 0.5:
            world.waiting.append(Waiting(number, arrivals.pop(0)))
            number += 1
        plan = world.step()
        moved = world.happen(rng)
        if not (arrivals or world.waiting):
            break
        assert moved or arrivals or plan != Turn(stuck=plan.stuck) or plan.begin
    assert [] == world.waiting
    for model in "abcd":
        order = [each.number for each in world.begun if each.model == model]
        assert sorted(order) == order


def test_switches_are_few():
    """Requests for two models that do not fit together, in turn, are served with few switches."""
    world, rng = World(4, frozenset()), random.Random(1)
    world.waiting = list(waiting("db" * 20))
    while world.waiting:
        world.step()
        world.happen(rng)
    assert world.switches <= 4

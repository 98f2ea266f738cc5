"""Turns: which waiting requests begin, which model is loaded for the others, and which make room. Pure.

    waiting   a1  b1  a2  b2  a3        a is loaded, b does not fit beside it
    begin     a1      a2      a3        requests of a loaded model go before a switch
    then      a is unloaded, b loaded
    begin         b1      b2

Rules:

- Requests of one model begin in the order in which they came.
- A model is loaded for the first request that waits for one; one at a time.
- Room is made by the models that were not used for longest, and all at once: none goes while another one that would
  have to go is still in use. A pinned model stays.
- A request that waits for its model may be overtaken `MAX_OVERTAKEN` times. Then no request begins any more on a
  model that has to make way for it: switches are few, and nobody starves.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

#: How many later requests may begin before one that waits for its model.
MAX_OVERTAKEN = 16


@dataclass(frozen=True, slots=True)
class Resident:
    """A model in memory.

    Attributes:
        name: its configured name.
        nbytes: what its weights take.
        leases: how many requests run on it.
        used_s: when a request last used it.
        pinned: it is not unloaded to make room, nor for being idle.
        idle_s: how long it may be unused; None for as long as there is room.
    """

    name: str
    nbytes: int
    leases: int = 0
    used_s: float = 0.0
    pinned: bool = False
    idle_s: float | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request that has not begun. `overtaken` counts later ones that have."""

    number: int
    model: str
    overtaken: int = 0


@dataclass(frozen=True, slots=True)
class Scene:
    """How things stand.

    Attributes:
        residents: the models in memory, those that are being unloaded included.
        waiting: in the order in which they came.
        sizes: the bytes of each model that is waited for, or is being loaded.
        free_slots: how many more requests may run.
        room_bytes: what all models together may take.
        loading: the model that is being loaded.
        unloading: models that are being unloaded.
        now_s: the time.
    """

    residents: tuple[Resident, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    free_slots: int = 1
    room_bytes: int = 0
    loading: str | None = None
    unloading: frozenset[str] = frozenset()
    now_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Turn:
    """What to do now.

    Attributes:
        begin: the numbers of the requests that begin.
        load: a model to load.
        unload: models to unload.
        stuck: the number of the first request that waits for its model.
        overtaking: how many of those that begin keep it from its room.
    """

    begin: tuple[int, ...] = ()
    load: str | None = None
    unload: tuple[str, ...] = ()
    stuck: int | None = None
    overtaking: int = 0


def plan_turn(scene: Scene) -> Turn:
    """Return what can be done now."""
    usable = {each.name: each for each in scene.residents if each.name not in scene.unloading}
    stuck = next((each for each in scene.waiting if each.model not in usable), None)
    victims = _victims(scene, usable, stuck)
    begin, overtaking = _begin(scene, usable, stuck, victims)
    busy = {name for name, each in usable.items() if each.leases} | {each.model for each in begin}
    if stuck is not None:
        busy |= {each.model for each in scene.waiting if each.number < stuck.number}
    unload = [name for name in usable if name not in busy and _is_idle(scene, usable[name])]
    if not busy.intersection(victims):
        unload += [name for name in victims if name not in unload]
    load = stuck.model if stuck is not None and _fits(scene, stuck.model) else None
    numbers = tuple(each.number for each in begin)
    return Turn(numbers, load, tuple(unload), stuck.number if stuck else None, overtaking)


def _fits(scene: Scene, name: str) -> bool:
    """Tell whether a model may be loaded now, beside all that is there."""
    free = scene.loading is None and name not in scene.unloading
    return free and _missing(scene, name) <= 0


def _missing(scene: Scene, name: str) -> int:
    """Return how many bytes are missing to load a model beside all that is there; none when that is negative."""
    taken = sum(each.nbytes for each in scene.residents)
    if scene.loading is not None and scene.loading != name:
        taken += scene.sizes[scene.loading]
    return taken + scene.sizes[name] - scene.room_bytes


def _victims(scene: Scene, usable: Mapping[str, Resident], stuck: Waiting | None) -> tuple[str, ...]:
    """Return the models that have to make way for a request that waits for its model; none when that cannot help."""
    if stuck is None or scene.loading == stuck.model:
        return ()
    going = sum(each.nbytes for each in scene.residents if each.name in scene.unloading)
    over = _missing(scene, stuck.model) - going
    if over <= 0:
        return ()
    earlier = {each.model for each in scene.waiting if each.number < stuck.number}
    loose = [each for each in usable.values() if not each.pinned]
    loose.sort(key=lambda each: (each.name in earlier, each.leases > 0, each.used_s))
    chosen: list[Resident] = []
    for each in loose:
        if over <= 0:
            break
        chosen.append(each)
        over -= each.nbytes
    if over > 0:
        return ()
    return _without_needless(chosen, -over)


def _without_needless(chosen: list[Resident], spare: int) -> tuple[str, ...]:
    """Leave out models that need not go: a larger one that was chosen after them makes room enough."""
    names = []
    for each in chosen:
        if each.nbytes <= spare:
            spare -= each.nbytes
        else:
            names.append(each.name)
    return tuple(names)


def _begin(
    scene: Scene, usable: Mapping[str, Resident], stuck: Waiting | None, victims: tuple[str, ...]
) -> tuple[list[Waiting], int]:
    """Return the requests that begin now, and how many of them keep the stuck one from its room.

    As many begin as there are slots, unless the stuck one was overtaken often enough.
    """
    begin: list[Waiting] = []
    overtaking = 0
    for each in scene.waiting:
        if len(begin) >= scene.free_slots:
            break
        if each.model not in usable:
            continue
        if stuck is not None and each.number > stuck.number:
            # when nothing that could go would make room, all wait: what runs has to end
            in_the_way = each.model in victims or (not victims and _missing(scene, stuck.model) > 0)
            if in_the_way and scene.loading != stuck.model:
                if stuck.overtaken + overtaking >= MAX_OVERTAKEN:
                    continue
                overtaking += 1
        begin.append(each)
    return begin, overtaking


def _is_idle(scene: Scene, resident: Resident) -> bool:
    """Tell whether a model has been unused for as long as its settings say."""
    if resident.pinned or resident.idle_s is None:
        return False
    wanted = any(each.model == resident.name for each in scene.waiting)
    return not wanted and scene.now_s - resident.used_s >= resident.idle_s

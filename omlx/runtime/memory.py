"""Memory: one budget for weights, live caches, the hot tier and pending writes; what a request needs of it. Pure.

    │◀──────────────────────────── server.memory ────────────────────────────▶│
    │ weights │ live caches of what runs │ pending │ hot tier, up to cache.hot │

The hot tier gives way to all others: it gets what they leave. The live caches are counted by what they will have
grown to, from before prefill until the request has ended. What a chunk of prefill needs besides is not counted.
"""

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from omlx.config.machine import memory_bytes
from omlx.config.settings import ServerSettings
from omlx.errors import BusyError, TooLargeError
from omlx.prefix.layout import Layout
from omlx.runtime.turns import Resident
from omlx.units import format_size

#: The part of this machine's RAM that is used when no budget is set.
DEFAULT_SHARE = 0.75
#: An answer counts up to this length: clients allow for many more tokens than they get.
ANSWER_TOKENS = 4096

Refusal: TypeAlias = BusyError | TooLargeError


class Account(msgspec.Struct, frozen=True):
    """Where the budget goes, in bytes.

    Attributes:
        budget_bytes: what all may take together.
        weights_bytes: of the models in memory, or on their way.
        sequences_bytes: live caches of running requests, as long as they may become.
        hot_bytes: blocks in the hot tier.
        pending_bytes: blocks that wait to be written.
        active_bytes: all arrays of MLX, as measured.
    """

    budget_bytes: int
    weights_bytes: int = 0
    sequences_bytes: int = 0
    hot_bytes: int = 0
    pending_bytes: int = 0
    active_bytes: int | None = None

    @property
    def firm_bytes(self) -> int:
        """Return what does not give way to a request."""
        return self.weights_bytes + self.sequences_bytes + self.pending_bytes

    @property
    def hot_room_bytes(self) -> int:
        """Return what is left to the hot tier."""
        return max(0, self.budget_bytes - self.firm_bytes)


def budget_bytes(server: ServerSettings) -> int:
    """Return the budget: what the settings say, else a share of this machine's RAM."""
    return int(server.memory or memory_bytes() * DEFAULT_SHARE)


def needed_bytes(layout: Layout | None, prompt_tokens: int, answer_tokens: int, window_tokens: int) -> int:
    """Return about how many bytes a sequence will take; 0 for a model whose caches are not known."""
    if layout is None:
        return 0
    return layout.sequence_bytes(min(prompt_tokens + min(answer_tokens, ANSWER_TOKENS), window_tokens))


def request_refusal(need: int, account: Account, lasting_bytes: int) -> Refusal | None:
    """Return why a request cannot run now, or ever; None when it can, with what the hot tier leaves it.

    `lasting_bytes` are the weights that stay whatever else ends: those of its own model, and of pinned ones.
    """
    most = account.budget_bytes - lasting_bytes
    what = f"the request needs {format_size(need)} of memory for its keys and values"
    if need > most:
        return TooLargeError(
            f"{what}, and server.memory ({format_size(account.budget_bytes)}) leaves {format_size(max(0, most))} "
            "beside the weights",
            hint="shorten the prompt, lower max_tokens, or raise server.memory in models.toml",
        )
    have = account.budget_bytes - account.firm_bytes
    if need > have:
        return BusyError(
            f"{what}, and {format_size(max(0, have))} of server.memory ({format_size(account.budget_bytes)}) are free",
            hint="try again when others have ended, or raise server.memory in models.toml",
        )
    return None


def model_refusal(name: str, nbytes: int, budget: int, pinned_bytes: int) -> TooLargeError | None:
    """Return why a model can never be loaded beside the pinned ones; None when it can."""
    most = budget - pinned_bytes
    if nbytes <= most:
        return None
    beside = " beside pinned models" if pinned_bytes else ""
    return TooLargeError(
        f"model {name!r} needs {format_size(nbytes)}, and server.memory ({format_size(budget)}) leaves "
        f"{format_size(max(0, most))}{beside}",
        hint="raise server.memory in models.toml, or name a smaller model",
    )


def spare_models(residents: Iterable[Resident], keep: str, short_bytes: int) -> tuple[str, ...]:
    """Return models that are in nobody's use and make room for a request, least recently used first."""
    idle = [each for each in residents if not (each.leases or each.pinned or each.name == keep)]
    names: list[str] = []
    for each in sorted(idle, key=lambda each: each.used_s):
        if short_bytes <= 0:
            break
        names.append(each.name)
        short_bytes -= each.nbytes
    return tuple(names)

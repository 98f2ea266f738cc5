"""What a prompt will cost: measured rates, kept per model, and the plan that follows from them.

The rates are running averages of what this machine did for this model. A plan weighs restoring a match against
computing the same tokens: when both rates are known and restoring would be slower, it computes.

Why a rate is believed less the more often it was the reason to compute: restoring is measured only when something is
restored, so one bad measurement would be the last. A tenth more each time: however slow restoring truly is, trying it
again costs about a tenth of what was computed meanwhile.
"""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from omlx.config.settings import CacheSettings
from omlx.prefix.layout import Layout
from omlx.prefix.match import Match
from omlx.types import Fingerprint

Rate: TypeAlias = Literal["prefill", "decode", "restore", "fetch", "tokenize", "store"]

#: Weight of one new observation in a running average.
_WEIGHT = 0.3
#: Observations of less work than this say more about overhead than about the rate.
_LEAST_WORK: dict[Rate, float] = {
    "prefill": 32,
    "decode": 4,
    "restore": 65536,
    "fetch": 65536,
    "tokenize": 256,
    "store": 65536,
}

#: How much faster restoring is taken to be each time it was passed over, as a part of the measured rate.
_DOUBT = 0.1
#: Computing is chosen only when it saves at least this: below it a rate's noise decides, and reuse is never noise.
_WORTH_COMPUTING_S = 0.25


class Rates(msgspec.Struct, frozen=True):
    """Work per second of one model on this machine: tokens for prefill, decode and tokenize, bytes for the others.

    0.0 means: not measured yet. `stages` has, for every stage by its name, the tokens of a prompt per second: all
    that is known of a stage without a rate of its own.
    """

    prefill: float = 0.0
    decode: float = 0.0
    restore: float = 0.0
    fetch: float = 0.0
    tokenize: float = 0.0
    store: float = 0.0
    stages: dict[str, float] = {}

    def seconds(self, rate: Rate, work: float) -> float:
        """Return the seconds that much work takes; 0.0 when the rate is not known."""
        known: float = getattr(self, rate)
        return work / known if known else 0.0

    def observed(self, rate: Rate, work: float, seconds: float) -> "Rates":
        """Return the rates after one more observation."""
        if work < _LEAST_WORK[rate] or seconds <= 0:
            return self
        return msgspec.structs.replace(self, **{rate: _average(getattr(self, rate), work / seconds)})

    def walked(self, tokens: int, seconds: Mapping[str, float]) -> "Rates":
        """Return the rates after a request of that many tokens, whose stages took so many seconds each."""
        if tokens < _LEAST_WORK["tokenize"]:
            return self
        new = {
            stage: _average(self.stages.get(stage, 0.0), tokens / spent)
            for stage, spent in seconds.items()
            if spent > 0
        }
        return msgspec.structs.replace(self, stages={**self.stages, **new})


def _average(known: float, rate: float) -> float:
    return known + _WEIGHT * (rate - known) if known else rate


class Profile(msgspec.Struct, frozen=True):
    """What is remembered of a model between runs, so that a dry run needs no weights."""

    fingerprint: Fingerprint
    layout: Layout
    rates: Rates = Rates()


class Plan(msgspec.Struct, frozen=True):
    """What will be done for a prompt, before it is done. Times in seconds, 0.0 where no rate is known.

    Attributes:
        prompt_tokens: length of the prompt.
        matched_tokens: how many of its first tokens are stored.
        resume: how many of them will be restored; the rest is computed.
        hot_tokens: restored tokens whose records are all in RAM.
        cold_tokens: restored tokens of which a record must be read from disk.
        hot_bytes: bytes of records taken from RAM.
        cold_bytes: bytes of records read from disk.
        restore_s: estimated time to fetch and restore.
        prefill_s: estimated time to compute the rest.
        cold_run_s: estimated time to compute the whole prompt.
        decision: `restore` or `compute`.
        reason: why, in words.
    """

    prompt_tokens: int
    matched_tokens: int
    resume: int
    hot_tokens: int
    cold_tokens: int
    hot_bytes: int
    cold_bytes: int
    restore_s: float
    prefill_s: float
    cold_run_s: float
    decision: Literal["restore", "compute"]
    reason: str


def make_plan(
    prompt_tokens: int,
    match: Match | None,
    layout: Layout | None,
    rates: Rates,
    least: int,
    *,
    prefer_reuse: bool = False,
) -> Plan:
    """Decide whether a match is worth restoring. `least` is the fewest tokens that are. Pure.

    With `prefer_reuse` the rates tell how long it will take, and decide nothing.
    """
    cold_run_s = rates.seconds("prefill", prompt_tokens)
    if match is None or layout is None:
        return _compute(prompt_tokens, 0, cold_run_s, "no cache is used")
    if match.resume < least:
        reason = f"only {match.resume} tokens could be reused" if match.resume else _no_reuse(match)
        return _compute(prompt_tokens, match.matched, cold_run_s, reason)
    hot_bytes, cold_bytes = match_bytes(match, layout)
    restore_s = rates.seconds("fetch", cold_bytes) + rates.seconds("restore", hot_bytes + cold_bytes)
    known = rates.prefill and rates.restore and (rates.fetch or not cold_bytes)
    if known and not prefer_reuse and restore_s > rates.seconds("prefill", match.resume) + _WORTH_COMPUTING_S:
        reason = f"restoring {match.resume} tokens would take {restore_s:.3f} s, computing them less"
        return _compute(prompt_tokens, match.matched, cold_run_s, reason)
    return Plan(
        prompt_tokens,
        match.matched,
        match.resume,
        match.hot_tokens,
        match.cold_tokens,
        hot_bytes,
        cold_bytes,
        restore_s,
        rates.seconds("prefill", prompt_tokens - match.resume),
        cold_run_s,
        "restore",
        str(match.shortfall) if match.shortfall else "everything that is stored is reused",
    )


def match_bytes(match: Match, layout: Layout) -> tuple[int, int]:
    """Return the bytes of the records that a match takes from RAM and from disk."""
    found = {"hot": 0, "cold": 0}
    for piece in match.pieces:
        for kind, tier in piece.tiers.items():
            found[tier] += layout.record_bytes(kind, piece.block.num_tokens)
    return found["hot"], found["cold"]


def _no_reuse(match: Match) -> str:
    return str(match.shortfall) if match.shortfall and match.matched else "nothing of this prompt is stored"


def _compute(prompt_tokens: int, matched: int, cold_run_s: float, reason: str) -> Plan:
    return Plan(prompt_tokens, matched, 0, 0, 0, 0, 0, 0.0, cold_run_s, cold_run_s, "compute", reason)


def profile_folder(cache: CacheSettings) -> Path:
    """Return where the profiles of models are kept."""
    return Path(cache.directory).expanduser() / "profiles"


class CostBook:
    """The profiles of all models seen, kept as small files. Safe on any thread.

    Args:
        folder: where the files are; None keeps them in memory only.
        still: take in no measurement.
    """

    def __init__(self, folder: Path | None, *, still: bool = False) -> None:
        self._folder = folder
        self._still = still
        self._profiles: dict[Fingerprint, Profile] = {}
        self._passed_over: dict[Fingerprint, int] = {}
        self._lock = threading.Lock()

    def at_rest(self) -> "CostBook":
        """Return a book of what is known now, for a dry run: it takes in no measurement."""
        book = CostBook(self._folder, still=True)
        with self._lock:
            book._profiles = dict(self._profiles)
            book._passed_over = dict(self._passed_over)
        return book

    def rates(self, fingerprint: Fingerprint) -> Rates:
        """Return what is known of a model, as far as it is still believed."""
        profile = self.profile(fingerprint)
        if profile is None:
            return Rates()
        with self._lock:
            doubt = 1 + _DOUBT * self._passed_over.get(fingerprint, 0)
        rates = profile.rates
        return msgspec.structs.replace(rates, restore=rates.restore * doubt, fetch=rates.fetch * doubt)

    def pass_over(self, fingerprint: Fingerprint) -> None:
        """Note that a match was computed instead, because of what was measured of restoring."""
        with self._lock:
            if not self._still:
                self._passed_over[fingerprint] = self._passed_over.get(fingerprint, 0) + 1

    def profile(self, fingerprint: Fingerprint) -> Profile | None:
        """Return a model's profile, from this run or an earlier one; None when there is none or it cannot be read."""
        with self._lock:
            if fingerprint not in self._profiles and (stored := self._read(fingerprint)) is not None:
                self._profiles[fingerprint] = stored
            return self._profiles.get(fingerprint)

    def know(self, fingerprint: Fingerprint, layout: Layout) -> None:
        """Remember a model's layout, and what was measured of it before."""
        known = self.profile(fingerprint)
        rates = known.rates if known else Rates()
        with self._lock:
            self._profiles[fingerprint] = Profile(fingerprint, layout, rates)

    def observe(self, fingerprint: Fingerprint, rate: Rate, work: float, seconds: float) -> None:
        """Take in one measurement of a model that is known."""
        if rate == "restore" and work:
            with self._lock:
                self._passed_over.pop(fingerprint, None)
        self._measured(fingerprint, lambda rates: rates.observed(rate, work, seconds))

    def walked(self, fingerprint: Fingerprint, tokens: int, seconds: Mapping[str, float]) -> None:
        """Take in the seconds of each stage of a request to a model that is known."""
        self._measured(fingerprint, lambda rates: rates.walked(tokens, seconds))

    def _measured(self, fingerprint: Fingerprint, change: Callable[[Rates], Rates]) -> None:
        with self._lock:
            profile = self._profiles.get(fingerprint)
            if profile is not None and not self._still:
                new = msgspec.structs.replace(profile, rates=change(profile.rates))
                self._profiles[fingerprint] = new

    def save(self) -> None:
        """Write every profile, each by a new file that takes the old one's place. Raises OSError."""
        if self._folder is None:
            return
        with self._lock:
            profiles = list(self._profiles.values())
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for profile in profiles:
            path = self._path(profile.fingerprint)
            temporary = path.with_suffix(".new")
            temporary.write_bytes(msgspec.json.encode(profile))
            temporary.replace(path)

    def _read(self, fingerprint: Fingerprint) -> Profile | None:
        if self._folder is None:
            return None
        try:
            return msgspec.json.decode(self._path(fingerprint).read_bytes(), type=Profile)
        except (OSError, msgspec.MsgspecError):
            return None  # a profile is a convenience: without it the next run measures again

    def _path(self, fingerprint: Fingerprint) -> Path:
        assert self._folder is not None  # checked by the callers
        return self._folder / f"{fingerprint}.json"

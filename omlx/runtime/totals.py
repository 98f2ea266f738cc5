"""What all requests since the start have cost together: seconds by part, tokens and bytes by where they came from."""

import threading
from collections import Counter

import msgspec

from omlx.pipeline.timeline import RequestTrace


class Sums(msgspec.Struct, frozen=True):
    """Sums over the requests that have ended.

    Attributes:
        requests: how many have ended.
        failed: how many of them with an error, those given up included.
        tokens: prompt, hot, cold, prefilled, completion.
        nbytes: hot and cold (restored), written.
        seconds: by the parts of a request: queue, load, and each stage.
        counts: how many requests went through each part.
    """

    requests: int = 0
    failed: int = 0
    tokens: dict[str, int] = {}
    nbytes: dict[str, int] = {}
    seconds: dict[str, float] = {}
    counts: dict[str, int] = {}


class Totals:
    """Add requests up. Safe on any thread."""

    def __init__(self) -> None:
        self._requests: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._nbytes: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, trace: RequestTrace) -> None:
        """Count a request that has ended."""
        used = trace.usage
        with self._lock:
            self._requests.update(ended=1, failed=int(trace.error is not None))
            self._tokens.update(
                prompt=used.prompt_tokens,
                hot=used.hot_tokens,
                cold=used.cold_tokens,
                prefilled=used.prefilled_tokens,
                completion=used.completion_tokens,
            )
            self._nbytes.update(hot=trace.hot_bytes, cold=trace.cold_bytes, written=trace.written.nbytes)
            for span in trace.spans:
                self._counts[span.stage] += 1
                self._seconds[span.stage] = self._seconds.get(span.stage, 0.0) + span.busy_s

    def sums(self) -> Sums:
        """Return the sums so far."""
        with self._lock:
            return Sums(
                self._requests["ended"],
                self._requests["failed"],
                dict(self._tokens),
                dict(self._nbytes),
                {name: round(spent, 6) for name, spent in self._seconds.items()},
                dict(self._counts),
            )

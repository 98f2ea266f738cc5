"""How likely tokens were: of the one that was chosen, and of the likeliest in its place.

The distribution is the model's own, before penalties, logit bias, temperature and what else a request does to it, as
the OpenAI API has it.
"""

from dataclasses import dataclass

import mlx.core as mx

from omlx.pipeline.work import Chances


@dataclass(frozen=True, slots=True)
class LazyChances:
    """What `Chances` are made of, on the device: `chosen (1,)`, `tokens (k,)`, `logprobs (k,)`, likeliest first."""

    chosen: mx.array
    tokens: mx.array
    logprobs: mx.array

    def read(self) -> Chances:
        """Return the values. Waits for the device."""
        pairs = zip(self.tokens.tolist(), self.logprobs.tolist(), strict=True)  # type: ignore[arg-type]
        return Chances(self.chosen.item(), tuple(pairs))  # type: ignore[arg-type]


def weigh(logits: mx.array, token: mx.array, count: int) -> LazyChances:
    """Return how likely `token` `(1,)` and the `count` likeliest are, by logits `(1, vocabulary)`. Lazy."""
    row = logits[0].astype(mx.float32)
    row = row - mx.logsumexp(row)
    likeliest = _likeliest(row, min(count, row.size))
    return LazyChances(row[token], likeliest, row[likeliest])


def _likeliest(row: mx.array, count: int) -> mx.array:
    if not count:
        return mx.zeros((0,), mx.uint32)
    found = mx.argpartition(-row, kth=count - 1)[:count]
    return found[mx.argsort(-row[found])]

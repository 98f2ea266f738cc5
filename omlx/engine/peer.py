"""mlx-lm by itself, in this process: what the engine is measured against. Not used to serve."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlx_lm import stream_generate
from mlx_lm.generate import BatchGenerator
from mlx_lm.utils import load

from omlx.types import Tokens


class Peer:
    """Run a model folder with mlx-lm's own loops, greedily.

    Args:
        folder: the model.
    """

    def __init__(self, folder: Path) -> None:
        self._model: Any
        self._model, self._tokenizer = load(str(folder))[:2]

    def stream_tps(self, prompt: Tokens, max_tokens: int) -> float:
        """Return the tokens per second of `stream_generate` after its first token."""
        response = None
        for response in stream_generate(self._model, self._tokenizer, prompt.tolist(), max_tokens):  # noqa: B007
            pass
        assert response is not None  # it yields at least the token that ends the answer
        return float(response.generation_tps)

    def together_tps(self, prompts: Sequence[Tokens], max_tokens: int) -> tuple[float, float]:
        """Return the tokens per second of `BatchGenerator`: prefill included, and from its first step on.

        No end token ends an answer.
        """
        started = time.perf_counter()
        generator = BatchGenerator(self._model)
        generator.insert([prompt.tolist() for prompt in prompts], [max_tokens] * len(prompts))
        count, first = len(generator.next_generated()), time.perf_counter()
        rest = 0
        while responses := generator.next_generated():
            rest += len(responses)
        ended = time.perf_counter()
        generator.close()
        return (count + rest) / (ended - started), rest / (ended - first)

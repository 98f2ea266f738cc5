"""Load a model from its folder, through mlx-lm, in two parts: `read` on any thread, `assemble` on the device thread.

    read       files, weights, tokenizer, fingerprint     seconds, beside requests that run
    assemble   caches, layout                             eight tokens through the model

Why `read` evaluates every array: one that is not evaluated can be computed by the thread alone that made it. That
holds for what a module keeps beside its weights as well, such as the frequencies of a scaled rotary embedding.
(MLX 0.32 on two cores: while 975 MB were read on another thread, the longest gap of a stream was 0.1 s.)

What holds streams up nevertheless: a fast tokenizer keeps the interpreter to itself while it reads its file, for a
vocabulary of 262,144 one to five seconds on two cores.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import structlog
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.tuner.utils import load_adapters
from mlx_lm.utils import load_model

from omlx.config.settings import ModelSettings
from omlx.errors import ModelLoadError
from omlx.kv.family import UnsupportedCacheError
from omlx.kv.layout import probe_layout
from omlx.kv.quantize import check_quantized, quantize_caches
from omlx.kv.rows import why_alone
from omlx.models.answer import AnswerParsers
from omlx.models.describe import adapter_folder, window
from omlx.models.fingerprint import fingerprint
from omlx.models.generation import model_sampling
from omlx.models.loaded import LoadedModel
from omlx.pipeline.model import Computing, Model
from omlx.prefix.layout import Layout
from omlx.stages.writeback import WritebackStage
from omlx.text.chat import ChatPrompt, Prompt
from omlx.text.seams import AnswerParser
from omlx.text.text_config import TextConfig, read_text_config
from omlx.text.tokenizer import FolderTokenizer
from omlx.text.turnover import lost_tokens
from omlx.types import Fingerprint, Tokens

log = structlog.get_logger()


#: Weights are evaluated in parts of this size: a stream that decodes meanwhile goes on between two of them.
_PART_BYTES = 64 * 1024**2


@dataclass(frozen=True)
class ReadModel:
    """A model in memory that has not run yet."""

    name: str
    settings: ModelSettings
    folder: Path
    computing: Computing
    identity: Fingerprint
    module: Any
    text: TextConfig
    parsers: AnswerParsers


def load(name: str, settings: ModelSettings, folder: Path, computing: Computing | None = None) -> LoadedModel:
    """Load weights and text parts of the model in a folder, to compute KV as `computing` says. Device thread.

    Raises ModelLoadError naming the folder and the reason.
    """
    return assemble(read(name, settings, folder, computing or Computing()))


def read(name: str, settings: ModelSettings, folder: Path, computing: Computing) -> ReadModel:
    """Read weights and text parts of the model in a folder; its arrays are evaluated. Any thread.

    Raises ModelLoadError naming the folder and the reason.
    """
    adapter = adapter_folder(settings)
    identity = fingerprint(folder, computing.identity(), adapter)
    module = _module(name, folder, adapter, trust_remote_code=settings.trust_remote_code)
    text, parsers = read_text_config(folder), AnswerParsers(folder)
    if fingerprint(folder, computing.identity(), adapter) != identity:
        raise ModelLoadError(f"the files in {folder} changed while they were read", hint="try again")
    return ReadModel(name, settings, folder, computing, identity, module, text, parsers)


def assemble(found: ReadModel) -> LoadedModel:
    """Make what was read ready to run, and find out what its cache is made of. Device thread."""
    settings, text, parsers = found.settings, found.text, found.parsers
    new_caches = _cache_maker(found.name, found.module, found.computing)
    layout, reason = _layout(found.name, found.module, new_caches())
    model = Model(
        name=found.name,
        fingerprint=found.identity,
        layout=layout,
        uncached_reason=reason,
        window_tokens=window(settings.window_tokens, text.window_tokens),
        eos_tokens=text.eos_token_ids,
        # its tokenizer is shared: reading one takes seconds for a large vocabulary
        tokenizer=FolderTokenizer(found.folder, parsers.tokenizer),
        new_parser=partial(_new_parser, parsers),
        sampling=model_sampling(found.folder, settings.sampling),
        template_options=settings.template_options,
        max_tokens=settings.max_tokens,
        vocabulary_tokens=text.vocabulary_tokens,
    )
    _warn_of_loss(model)
    alone = why_alone(found.module, new_caches(), new_caches())
    if alone is not None:
        log.warning("sequences decode one by one", model=found.name, reason=alone)
    nbytes = sum(array.nbytes for array in _arrays(found.module))
    return LoadedModel(found.module, new_caches, model, nbytes, alone)


def _warn_of_loss(model: Model) -> None:
    """Say so when each turn will compute more than a block again, because of how the template renders the next one."""
    lost = lost_tokens(model.tokenizer, model.template_options)
    if lost is not None and lost > WritebackStage().block_tokens:
        log.warning(
            "each turn loses more than its generation prompt",
            model=model.name,
            lost_tokens=lost,
            reason="the chat template renders what stands before the answer otherwise in the next turn",
        )


def _module(name: str, folder: Path, adapter: Path | None, *, trust_remote_code: bool) -> Any:
    """Return the weights, evaluated, with the adapter laid over them."""
    try:
        module, _ = load_model(folder, lazy=True, trust_remote_code=trust_remote_code)
        if adapter is not None:
            module = load_adapters(module, str(adapter))
            module.eval()
        _evaluate(module)
    except (ValueError, OSError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        where = f"{folder} with adapter {adapter}" if adapter else f"{folder}"
        raise ModelLoadError(
            f"model {name!r} cannot be loaded from {where}: {error}", hint="give the folder of an MLX model"
        ) from error
    return module


def _evaluate(module: Any) -> None:
    """Evaluate all arrays of a module, a bounded part at a time."""
    part: list[mx.array] = []
    for array in _arrays(module):
        part.append(array)
        if sum(each.nbytes for each in part) >= _PART_BYTES:
            mx.eval(part)
            part = []
    mx.eval(part)


def _arrays(module: Any) -> Iterator[mx.array]:
    """Yield every array that a module holds, at any depth, once: weights, and what is not saved with them."""
    seen: set[int] = set()
    rest = [module]
    while rest:
        value = rest.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, mx.array):
            yield value
        elif isinstance(value, dict):  # a module is one, with attributes besides
            rest += [*value.values(), *getattr(value, "__dict__", {}).values()]
        elif isinstance(value, list | tuple):
            rest += value


def _cache_maker(name: str, module: Any, computing: Computing) -> Callable[[], list[Any]]:
    """Return what makes a sequence's caches, quantized if asked for. Says once which layers stay as they are."""
    plain: Callable[[], list[Any]] = partial(make_prompt_cache, module)
    if computing.kv_bits is None:
        return plain
    left = check_quantized(module, plain, computing.kv_bits, computing.kv_group_size)
    if left:
        log.warning("layers keep unquantized keys and values", model=name, layers=left)
    bits, group_size = computing.kv_bits, computing.kv_group_size
    return lambda: quantize_caches(plain(), bits, group_size).caches


def _new_parser(
    parsers: AnswerParsers, prompt: Prompt, tokens: Tokens, stop: tuple[str, ...]
) -> AnswerParser:
    """Return the parser of one answer: only a chat has tools and reasoning, other prompts are plain text."""
    if isinstance(prompt, ChatPrompt):
        return parsers.new(tokens, stop, prompt.tools)
    return parsers.new(tokens, stop, plain=True)


def _layout(name: str, module: Any, caches: list[Any]) -> tuple[Layout | None, str | None]:
    """Return the model's layout, or None and why its caches cannot be stored."""
    try:
        return probe_layout(module, caches), None
    except UnsupportedCacheError as error:
        reason = f"its layers use {error}, which cannot be stored yet"
        log.warning("model runs uncached", model=name, reason=reason)
        return None, reason

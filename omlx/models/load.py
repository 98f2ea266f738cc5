"""Load a model: from a folder, a hub name or the catalog of small models, through mlx-lm. Device thread only."""

from collections.abc import Callable
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
from omlx.models.answer import AnswerParsers
from omlx.models.fingerprint import fingerprint
from omlx.models.generation import model_sampling
from omlx.models.loaded import LoadedModel
from omlx.pipeline.model import Computing, Model
from omlx.prefix.layout import Layout
from omlx.stages.writeback import WritebackStage
from omlx.text.chat import ChatPrompt, Prompt
from omlx.text.seams import AnswerParser
from omlx.text.text_config import read_text_config
from omlx.text.tokenizer import FolderTokenizer
from omlx.text.turnover import lost_tokens
from omlx.types import Tokens

log = structlog.get_logger()

#: The window of a model whose config names none.
DEFAULT_WINDOW_TOKENS = 32_768


def load(name: str, settings: ModelSettings, folder: Path, computing: Computing | None = None) -> LoadedModel:
    """Load weights and text parts of the model in a folder, to compute KV as `computing` says.

    Raises ModelLoadError naming the folder and the reason.
    """
    adapter = Path(settings.adapter).expanduser() if settings.adapter else None
    computing = computing or Computing()
    identity = fingerprint(folder, computing.identity(), adapter)
    module = _module(name, folder, adapter, trust_remote_code=settings.trust_remote_code)
    new_caches = _cache_maker(name, module, computing)
    layout, reason = _layout(name, module, new_caches())
    text = read_text_config(folder)
    parsers = AnswerParsers(
        folder
    )  # its tokenizer is shared: reading one takes seconds for a large vocabulary
    model = Model(
        name=name,
        fingerprint=identity,
        layout=layout,
        uncached_reason=reason,
        window_tokens=_window(settings.window_tokens, text.window_tokens),
        eos_tokens=text.eos_token_ids,
        tokenizer=FolderTokenizer(folder, parsers.tokenizer),
        new_parser=partial(_new_parser, parsers),
        sampling=model_sampling(folder, settings.sampling),
        template_options=settings.template_options,
        max_tokens=settings.max_tokens,
        vocabulary_tokens=text.vocabulary_tokens,
    )
    _warn_of_loss(model)
    return LoadedModel(module, new_caches, model)


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
        module, _ = load_model(folder, trust_remote_code=trust_remote_code)
        if adapter is not None:
            module = load_adapters(module, str(adapter))
            module.eval()
    except (ValueError, OSError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        where = f"{folder} with adapter {adapter}" if adapter else f"{folder}"
        raise ModelLoadError(
            f"model {name!r} cannot be loaded from {where}: {error}", hint="give the folder of an MLX model"
        ) from error
    mx.eval(module.parameters())
    return module


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


def _window(asked: int | None, own: int | None) -> int:
    """Return the window: what is asked for, but never more than the model's own."""
    known = own or DEFAULT_WINDOW_TOKENS
    return min(asked, known) if asked else known


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

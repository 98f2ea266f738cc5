"""The sampling a model's own `generation_config.json` asks for. No MLX."""

from pathlib import Path

import msgspec

from omlx.config.settings import SamplingDefaults
from omlx.errors import ModelLoadError
from omlx.pipeline.request import Sampling


class _GenerationConfig(msgspec.Struct):
    """The keys of `generation_config.json` that are taken over."""

    do_sample: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None


def model_sampling(folder: Path, settings: SamplingDefaults) -> Sampling:
    """Return the sampling of a model: its settings in TOML, over its own generation config, over greedy.

    Raises ModelLoadError when the generation config is not what it should be.
    """
    path = folder / "generation_config.json"
    own = Sampling()
    if path.is_file():
        try:
            config = msgspec.json.decode(path.read_bytes(), type=_GenerationConfig)
        except msgspec.MsgspecError as error:
            raise ModelLoadError(f"{path} cannot be used: {error}", hint="mend or delete it") from error
        if config.do_sample is not False:
            own = Sampling(
                temperature=config.temperature if config.temperature or not config.do_sample else 1.0,
                top_p=config.top_p,
                top_k=config.top_k,
                min_p=config.min_p,
                repetition_penalty=config.repetition_penalty,
            )
    return Sampling(**msgspec.structs.asdict(settings)).over(own)

"""Describe a model without its weights: its `Model`, as far as a dry run needs it. No MLX.

Identity, window and text parts are read from the folder, as loading does; the layout of its cache is known from an
earlier run (`CostBook`), since only a loaded model can tell it.
"""

from pathlib import Path

from omlx.blas import user_cache
from omlx.config.settings import ModelSettings
from omlx.errors import ModelLoadError
from omlx.models.catalog import CATALOG
from omlx.models.fingerprint import fingerprint
from omlx.pipeline.cost import CostBook
from omlx.pipeline.model import Computing, Model
from omlx.text.chat import Prompt
from omlx.text.seams import AnswerParser
from omlx.text.text_config import read_text_config
from omlx.text.tokenizer import FolderTokenizer
from omlx.types import Fingerprint, Tokens

#: The window of a model whose config names none.
DEFAULT_WINDOW_TOKENS = 32_768


def local_folder(path: str) -> Path:
    """Return the folder of a model that is on this machine. Downloads nothing. Raises ModelLoadError."""
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder
    prepared = (
        sorted((user_cache() / "models").glob(f"{path.lower()}-*/config.json")) if path in CATALOG else []
    )
    if prepared:
        return prepared[0].parent
    # huggingface_hub takes 0.4 s to import
    from huggingface_hub import snapshot_download  # noqa: PLC0415
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError  # noqa: PLC0415 - 0 s, as above

    name, revision = hub_name(path)
    try:
        return Path(snapshot_download(name, revision=revision, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError, OSError) as error:
        raise ModelLoadError(
            f"model {path!r} is not on this machine",
            hint="fetch it with omlx models pull, or give the folder of a local model",
        ) from error


def hub_name(path: str) -> tuple[str, str | None]:
    """Return the name on the hub and the revision that `owner/name@revision` pins, if it does."""
    name, _, revision = path.partition("@")
    return name, revision or None


def identity(settings: ModelSettings, folder: Path, computing: Computing) -> Fingerprint:
    """Return the identity under which a configured model's blocks are stored. Raises ModelLoadError."""
    return fingerprint(folder, computing.identity(), adapter_folder(settings))


def adapter_folder(settings: ModelSettings) -> Path | None:
    """Return the folder of a model's adapter, if it has one."""
    return Path(settings.adapter).expanduser() if settings.adapter else None


def weight_bytes(settings: ModelSettings, folder: Path | None = None) -> int | None:
    """Return the bytes of a model's weight files, its adapter's included; None when they are not here yet.

    `folder` is where the model is, if that is known.
    """
    try:
        folders = [folder or local_folder(settings.path), adapter_folder(settings)]
    except ModelLoadError:
        return None
    files = [file for folder in folders if folder is not None for file in folder.glob("*.safetensors")]
    return sum(file.stat().st_size for file in files)


def window(asked: int | None, own: int | None) -> int:
    """Return the window: what is asked for, but never more than the model's own."""
    known = own or DEFAULT_WINDOW_TOKENS
    return min(asked, known) if asked else known


def describe(
    name: str, settings: ModelSettings, folder: Path, costs: CostBook, computing: Computing
) -> Model:
    """Return what is known of the model in a folder. It renders and tokenizes; it does not answer.

    Raises ModelLoadError naming the folder and the reason.
    """
    known = identity(settings, folder, computing)
    profile = costs.profile(known)
    text = read_text_config(folder)
    return Model(
        name=name,
        fingerprint=known,
        layout=profile.layout if profile else None,
        window_tokens=window(settings.window_tokens, text.window_tokens),
        eos_tokens=text.eos_token_ids,
        tokenizer=FolderTokenizer(folder),
        new_parser=_no_parser,
        template_options=settings.template_options,
        max_tokens=settings.max_tokens,
        vocabulary_tokens=text.vocabulary_tokens,
    )


def _no_parser(prompt: Prompt, tokens: Tokens, stop: tuple[str, ...]) -> AnswerParser:  # noqa: ARG001 - the seam's
    raise ModelLoadError("a model that is only described gives no answers", hint="load it")

"""Where a model's files are: a folder, a small model of the catalog, or a hub name. No MLX."""

from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from omlx.errors import ModelLoadError
from omlx.models.catalog import CATALOG
from omlx.models.describe import hub_name
from omlx.models.prepare import prepare

#: What a model folder needs of a hub repository.
_PATTERNS = ["*.json", "*.jinja", "*.safetensors", "*.model", "*.txt", "*.py", "*.tiktoken"]


def resolve_folder(path: str, *, progress: bool = True) -> Path:
    """Return the folder of a model, downloading it when `path` is not a folder.

    A name on the hub may pin a revision: `owner/name@revision`.

    Raises ModelLoadError saying what was tried.
    """
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder
    if path.lower() in CATALOG:
        return prepare(path.lower(), progress=progress)
    if path.count("/") != 1 or path.startswith((".", "/", "~")):
        raise ModelLoadError(
            f"model folder {path!r} does not exist",
            hint="give an existing folder, a hub name such as owner/name, or one of: " + ", ".join(CATALOG),
        )
    try:
        name, revision = hub_name(path)
        return Path(snapshot_download(name, revision=revision, allow_patterns=_PATTERNS))
    except (RepositoryNotFoundError, RevisionNotFoundError, HFValidationError) as error:
        raise ModelLoadError(
            f"there is no model {path!r} on the hub", hint="check name and revision"
        ) from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise ModelLoadError(
            f"model {path!r} is not on this machine and could not be downloaded: {type(error).__name__}",
            hint="check the connection, or give the folder of a local model",
        ) from error

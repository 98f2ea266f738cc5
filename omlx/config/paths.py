"""Where configuration files are found."""

from pathlib import Path

from omlx.config.decode import suggestion
from omlx.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parent.parent


def pipeline_folders(base: Path) -> list[Path]:
    """Return the folders that may hold pipelines: beside `models.toml`, in the wheel, in a checkout."""
    candidates = [base / "pipelines", _PACKAGE / "data" / "pipelines"]
    if (_PACKAGE.parent / "pyproject.toml").is_file():  # a checkout, not site-packages
        candidates.append(_PACKAGE.parent / "pipelines")
    return [folder for folder in candidates if folder.is_dir()]


def pipeline_names(base: Path) -> list[str]:
    """Return the names of all pipelines that can be found."""
    return sorted({path.stem for folder in pipeline_folders(base) for path in folder.glob("*.toml")})


def find_pipeline(name: str, base: Path) -> Path:
    """Return the file of a pipeline: a path ending in .toml (relative to `base`), or a name.

    Raises ConfigError listing the options.
    """
    if name.endswith(".toml"):
        path = base / Path(name).expanduser()
        if path.is_file():
            return path
        raise ConfigError(f"pipeline file {path} does not exist")
    for folder in pipeline_folders(base):
        if (path := folder / f"{name}.toml").is_file():
            return path
    raise ConfigError(f"there is no pipeline {name!r}", hint=suggestion(name, pipeline_names(base)))


def find_models_file(given: str | None) -> Path | None:
    """Return the `models.toml` to use: the one given, else the one in the current folder, else none.

    Raises ConfigError when the one given does not exist.
    """
    path = Path(given or "models.toml").expanduser()
    if path.is_file():
        return path
    if given is None:
        return None
    raise ConfigError(f"{path} does not exist", hint="name an existing models.toml, or use --model FOLDER")

"""Which model a request means: its name, an alias, or the path it was configured with."""

from pathlib import Path

from omlx.config.settings import AliasSettings, Settings
from omlx.errors import UnknownModelError


class ModelNames:
    """Map every spelling a client may use to the name of a configured model."""

    def __init__(self, settings: Settings) -> None:
        self._names: dict[str, str] = {}
        self._aliases: dict[str, AliasSettings] = {}
        for name, model in settings.models.items():
            self._names[name] = name
            for alias in model.aliases:
                self._names[alias] = name
            if isinstance(model.aliases, dict):
                self._aliases.update(model.aliases)
        for name, model in settings.models.items():
            for spelling in (model.path, Path(model.path).name):
                self._names.setdefault(spelling, name)
        self._default = settings.defaults.model or next(iter(settings.models), "")
        self._listed = list(settings.models)

    def resolve(self, name: str | None) -> str:
        """Return the configured name; the default model's for None or "". Raises UnknownModelError."""
        wanted = name or self._default
        if wanted not in self._names:
            raise UnknownModelError(wanted, self._listed)
        return self._names[wanted]

    def alias(self, name: str) -> AliasSettings | None:
        """Return what an alias says beyond its name; None for other names, and for an alias that says nothing."""
        found = self._aliases.get(name)
        return None if found == AliasSettings() else found

    def default(self) -> str:
        """Return the name of the default model, as it was configured."""
        return self._default

"""Values and keys as TOML spells them."""

import json
from collections.abc import Mapping
from typing import Any

from omlx.config.lines import BARE_KEY


def toml_key(name: str) -> str:
    """Return a key, in quotes where it needs them."""
    return name if BARE_KEY.fullmatch(name) else toml_value(name)


def toml_value(value: Any) -> str:
    """Return a value; a table becomes an inline one."""
    if isinstance(value, Mapping):
        inside = ", ".join(f"{key} = {toml_value(inner)}" for key, inner in value.items())
        return f"{{ {inside} }}" if value else "{}"
    return json.dumps(value, ensure_ascii=False)

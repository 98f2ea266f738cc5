"""Defaults: what a request gets where it says nothing itself: from the alias it names, then from the model."""

from collections.abc import Mapping
from typing import Any

import msgspec

from omlx.config.settings import AliasSettings
from omlx.pipeline.request import Request, Sampling
from omlx.text.chat import ChatPrompt


def with_defaults(
    request: Request, alias: AliasSettings | None, template_options: Mapping[str, Any]
) -> Request:
    """Return the request with the alias's sampling, and the template options of alias and model, beneath its own.

    The model's sampling comes last of all, where the request meets the model.
    """
    said = alias or AliasSettings()
    prompt, options = request.prompt, {**template_options, **said.template_options}
    if isinstance(prompt, ChatPrompt) and options:
        prompt = msgspec.structs.replace(prompt, template_options={**options, **prompt.template_options})
    sampling = request.sampling.over(Sampling(**msgspec.structs.asdict(said.sampling)))
    return msgspec.structs.replace(request, prompt=prompt, sampling=sampling)

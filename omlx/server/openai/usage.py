"""Usage as OpenAI's clients read it, with what the cache did beside it."""

from collections.abc import Sequence

import msgspec

from omlx.pipeline.explanation import Explanation
from omlx.text.delta import Finished


class PromptDetails(msgspec.Struct, frozen=True):
    """`cached_tokens`: prompt tokens that were restored and not computed."""

    cached_tokens: int


class CacheUsage(msgspec.Struct, frozen=True):
    """Where prompt tokens came from, and the seconds spent in each stage.

    `trace` explains the request when it was sent with the header `x-omlx-trace: 1`; else it is not there.
    """

    hot_tokens: int
    cold_tokens: int
    prefilled_tokens: int
    seconds: dict[str, float]
    trace: Explanation | msgspec.UnsetType = msgspec.UNSET


class UsageBody(msgspec.Struct, frozen=True):
    """Token counts; `omlx` is an addition of this server."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    omlx: CacheUsage


def usage_body(ends: Sequence[Finished]) -> UsageBody:
    """Return the usage of a finished request. The same on every path, and every field is always there.

    Of several choices the prompt counts once, as the first has met it, and so do its seconds.
    """
    finished = ends[0]
    usage, explained = finished.usage, finished.explanation
    completion_tokens = sum(end.usage.completion_tokens for end in ends)
    return UsageBody(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=completion_tokens,
        total_tokens=usage.prompt_tokens + completion_tokens,
        prompt_tokens_details=PromptDetails(usage.cached_tokens),
        omlx=CacheUsage(
            hot_tokens=usage.hot_tokens,
            cold_tokens=usage.cold_tokens,
            prefilled_tokens=usage.prefilled_tokens,
            seconds={name: round(spent, 6) for name, spent in finished.seconds.items()},
            trace=explained if isinstance(explained, Explanation) else msgspec.UNSET,
        ),
    )

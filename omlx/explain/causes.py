"""Causes: why a prompt left another one, and what would mend it. A table of detectors, the first that fits counts.

The order is from what is certain to what is left over: the last rows fit everything in their part of the prompt.
A detector asks a `Clue`; it never guesses from the client's name.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from omlx.explain.clue import Clue
from omlx.pipeline.explanation import Cause

Detector: TypeAlias = Callable[[Clue], bool]


class Row(NamedTuple):
    """One cause: its name, what it is, what mends it, and how to tell."""

    name: str
    what: str
    remedy: str
    fits: Detector


_DAY = r"(?:Mon|Tue|Tues|Wed|Thu|Thur|Thurs|Fri|Sat|Sun|Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday)"
_MONTH = (
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec|January|February|March|April|June|July|August"
    r"|September|October|November|December)"
)
#: A date, a time of day, or seconds since 1970.
_CLOCK = re.compile(
    rf"\b\d{{4}}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?|\b\d{{1,2}}:\d\d(?::\d\d)?(?:\s?[AaPp][Mm])?\b"
    rf"|\b\d{{1,2}}[./]\d{{1,2}}[./]\d{{2,4}}\b|\b1[6-9]\d{{8}}(?:\d{{3}})?\b"
    rf"|\b(?:{_DAY},?\s+)?(?:{_MONTH}\.?\s+\d{{1,2}}|\d{{1,2}}\.?\s+{_MONTH})\b(?:,?\s+\d{{4}})?"
    rf"|\b{_DAY}\b(?:,?\s+\d{{1,2}})?"
)
_THOUGHTS = re.compile(r"<think>|<thinking>|\[THINK\]|<\|channel\|>analysis")
_NO_THOUGHTS = re.compile(r"<think>\s*</think>|<thinking>\s*</thinking>")


def _clock(clue: Clue) -> bool:
    return not (clue.is_last and clue.role != "system") and clue.inside(_CLOCK)


def _attribution(clue: Clue) -> bool:
    return clue.line_says("x-anthropic-billing-header")


def _in_tools(clue: Clue) -> bool:
    return clue.role == "tools"


def _tool_order(clue: Clue) -> bool:
    ours, theirs = clue.our_tools(), clue.their_tools()
    return _in_tools(clue) and ours != theirs and sorted(ours) == sorted(theirs)


def _tool_list(clue: Clue) -> bool:
    return _in_tools(clue) and clue.our_tools() != clue.their_tools()


def _schema_keys(clue: Clue) -> bool:
    return _in_tools(clue) and clue.same_object()


def _argument_keys(clue: Clue) -> bool:
    return clue.role == "assistant" and clue.same_object()


def _reasoning(clue: Clue) -> bool:
    if clue.role not in {"assistant", "generation"}:
        return False
    ours, theirs = clue.near(_THOUGHTS)
    empty_ours, empty_theirs = clue.near(_NO_THOUGHTS)
    return ours != theirs or empty_ours != empty_theirs


def _rerendered(clue: Clue) -> bool:
    return clue.role == "assistant" and clue.same_but_spaces()


#: Parts of a prompt that stand at its head and are no message.
_HEAD = frozenset({"system", "tools"})
#: Prompts that share less text than this have nothing to do with each other.
_FEW_CHARS = 120
_NORMALIZE = "add the rule `{}` to the `normalize` stage"

#: Every cause, in the order in which they are tried.
TABLE: tuple[Row, ...] = (
    Row(
        "attribution",
        "a line that names the client's build changes from session to session",
        _NORMALIZE.format("attribution") + ", or set CLAUDE_CODE_ATTRIBUTION_HEADER=0 for the client",
        _attribution,
    ),
    Row(
        "tool_order",
        "the same tools stand in another order",
        _NORMALIZE.format("tool_order"),
        _tool_order,
    ),
    Row(
        "key_order",
        "the same JSON Schema has its keys in another order",
        _NORMALIZE.format("schema_keys"),
        _schema_keys,
    ),
    Row(
        "tools_changed",
        "a tool was added, taken away or renamed",
        "keep one list of tools for a session: connect tool servers before it begins",
        _tool_list,
    ),
    Row(
        "clock",
        "a date or a time has moved on",
        "let the client say it in the newest message, or give the `normalize` stage a `volatile` pattern for it",
        _clock,
    ),
    Row(
        "tool_edited",
        "the description or the schema of a tool is another",
        "keep what changes (counters, paths, dates) out of the descriptions of tools",
        _in_tools,
    ),
    Row(
        "rerendered",
        "an earlier answer came back with other white space than it was generated with",
        "nothing to set here: at most that answer is computed once more",
        _rerendered,
    ),
    Row(
        "arguments_order",
        "the arguments of an earlier call came back with their keys in another order",
        "nothing to set here: the client rewrites them; what follows that call is computed once more",
        _argument_keys,
    ),
    Row(
        "reasoning",
        "reasoning is on one side only: dropped from history, or an empty thought in its place",
        "let the client send `reasoning_content` back, where the model's template keeps it",
        _reasoning,
    ),
    Row(
        "moved",
        "a message that the client keeps at the end has moved on: something now stands before it",
        "nothing to set here: only that message is computed once more",
        lambda clue: clue.role not in _HEAD and clue.comes_later(),
    ),
    Row(
        "shortened",
        "messages that stood here are gone: the history was compacted or cut",
        "raise the client's context limit, or compact less often",
        lambda clue: clue.role not in _HEAD and clue.came_later(),
    ),
    Row(
        "generation",
        "the template opens an answer otherwise than it writes one into history",
        "nothing to set here: the generation prompt and one answer are computed once more",
        lambda clue: clue.role == "generation",
    ),
    Row(
        "another_prompt",
        "these are two conversations: they share a few words at the beginning",
        "nothing to mend",
        lambda clue: clue.shared_chars < _FEW_CHARS,
    ),
    Row(
        "another_question",
        "the conversations part here: another question, or another answer",
        "nothing to mend",
        lambda clue: clue.is_last,
    ),
    Row(
        "system_changed",
        "the system prompt is another one",
        "keep what changes (files, state, identifiers) out of the system prompt: say it in the newest message",
        lambda clue: clue.role == "system",
    ),
    Row(
        "answer_changed",
        "an earlier answer came back changed",
        "nothing to set here: a client that sends answers back as they were loses nothing",
        lambda clue: clue.role == "assistant",
    ),
    Row(
        "history_edited",
        "an earlier message was edited",
        "append to a conversation instead of changing what has been said",
        lambda _: True,
    ),
)

#: What cannot be told from two texts: causes found by looking into the index.
STORED: Mapping[str, Cause] = MappingProxyType(
    {
        cause.name: cause
        for cause in (
            Cause(
                "nothing_stored",
                "nothing of this model is stored yet",
                "send a request: it is kept from then on",
            ),
            Cause("new_prompt", "no stored prompt of this model begins like this one", "nothing to mend"),
            Cause(
                "other_model",
                "the same tokens are stored for another model: weights, adapter, tokenizer or template changed",
                "use the model they were stored with, or let this one store its own",
            ),
            Cause(
                "evicted",
                "the prompt is known, but records of it were evicted or lost",
                "give the cache more room: `cache.cold` and `cache.hot` in models.toml",
            ),
            Cause(
                "no_snapshot",
                "recurrent layers resume only where a snapshot of their state was taken, and none is that far on",
                "nothing to mend; smaller prefill chunks leave more of them: prefill.chunk_tokens",
            ),
            Cause(
                "slower",
                "restoring what is stored would take longer than computing it",
                "nothing to mend; a faster disk or a larger `cache.hot` would change it",
            ),
            Cause(
                "too_short",
                "what is stored is too short to be worth restoring",
                "lower lookup.min_reuse_tokens",
            ),
            Cause(
                "no_cache", "this chain has no stage that looks anything up", "use a pipeline with `lookup`"
            ),
            Cause(
                "no_layout",
                "it is not known how this model's cache is laid out",
                "serve the model once: its layout is kept from then on",
            ),
        )
    }
)


def likely_cause(clue: Clue) -> Cause:
    """Return the first cause of the table that fits."""
    row = next(row for row in TABLE if row.fits(clue))
    return Cause(row.name, row.what, row.remedy)

r"""Rules that keep a prompt's prefix the same from request to request. Each is pure, named, optional.

What changes at the front of a prompt makes the rest of it new to the cache. Clients change more than they
need to: a line with a hash, tools in the order of a map, a clock. A rule removes one such change and reports
what it did as `Rewrite`s, so that a trace can show it.

    attribution    drop `x-anthropic-billing-header:` lines at the head of the system prompt
    tool_order     sort tools by name
    schema_keys    sort object keys inside tools, and `required`; other arrays keep their order
    result_order   put the results of parallel calls in the order of the calls, matched by id

`volatile` is made from a pattern of the user's own: it replaces text in system messages only.

Why keys may be sorted: JSON objects have no order, and `required` is a set by definition of JSON Schema. The
order of `enum`, `oneOf` and `anyOf` is kept because models read it.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import msgspec

from omlx.errors import ConfigError
from omlx.registry import Registry, nearest
from omlx.text.chat import ChatPrompt, Message


class Rewrite(msgspec.Struct, frozen=True):
    """One change a rule made. `where` is a path (`messages[0].content`), `what` says it in words."""

    rule: str
    where: str
    what: str


#: What a rule returns: the prompt, the same object when nothing changed, and its changes.
Rewritten: TypeAlias = tuple[ChatPrompt, tuple[Rewrite, ...]]
Rule: TypeAlias = Callable[[ChatPrompt], Rewritten]

#: The rules by name, in the order in which they should run.
NORMALIZE_RULES: Registry[Rule] = Registry("normalize rule")


def find_rule(name: str) -> Rule:
    """Return the rule of that name. Raises ConfigError that lists the names when there is none."""
    rule = NORMALIZE_RULES.get(name)
    if rule is None:
        names = NORMALIZE_RULES.names()
        near = nearest(name, names)
        hint = f"did you mean {near!r}?" if near else "use one of: " + ", ".join(names)
        raise ConfigError(f"there is no normalize rule {name!r}", hint=hint)
    return rule


def normalize(prompt: ChatPrompt, rules: Iterable[str | Rule]) -> Rewritten:
    """Apply the rules in order, each a name or a rule; return the prompt and every change.

    Raises ConfigError for an unknown name.
    """
    rewrites: tuple[Rewrite, ...] = ()
    for rule in rules:
        prompt, done = (find_rule(rule) if isinstance(rule, str) else rule)(prompt)
        rewrites += done
    return prompt, rewrites


#: The header with its `key=value;` pairs, or all of its line when it has none. Text right after it stays.
_ATTRIBUTION = re.compile(
    r"\s*x-anthropic-billing-header:(?:(?:[ \t]*[\w.-]+=[^;\s]*(?:;|(?=\s|\Z)))+|[^\n]*)[ \t]*\n*"
)


@NORMALIZE_RULES.register("attribution")
def attribution(prompt: ChatPrompt) -> Rewritten:
    """Drop attribution lines at the head of leading system messages; a message left empty goes too."""
    messages: list[Message] = []
    rewrites: list[Rewrite] = []
    leading = True
    for index, message in enumerate(prompt.messages):
        leading = leading and message.role == "system"
        match = _ATTRIBUTION.match(message.content) if leading else None
        if match is None:
            messages.append(message)
            continue
        rewrites.append(Rewrite("attribution", f"messages[{index}].content", f"dropped {match[0].strip()!r}"))
        if rest := message.content[match.end() :]:
            messages.append(msgspec.structs.replace(message, content=rest))
    if not rewrites:
        return prompt, ()
    return msgspec.structs.replace(prompt, messages=tuple(messages)), tuple(rewrites)


@NORMALIZE_RULES.register("tool_order")
def tool_order(prompt: ChatPrompt) -> Rewritten:
    """Sort tools by name; tools of one name keep their order."""
    names = [_tool_name(tool) for tool in prompt.tools]
    if names == sorted(names):
        return prompt, ()
    tools = tuple(sorted(prompt.tools, key=_tool_name))
    first = next(
        i for i, (name, tool) in enumerate(zip(names, tools, strict=True)) if name != _tool_name(tool)
    )
    what = f"sorted {len(tools)} tools by name"
    return msgspec.structs.replace(prompt, tools=tools), (Rewrite("tool_order", f"tools[{first}]", what),)


@NORMALIZE_RULES.register("schema_keys")
def schema_keys(prompt: ChatPrompt) -> Rewritten:
    """Sort the keys inside each tool's `parameters`, and `required`; put a tool's own keys in one order."""
    tools = tuple(_canonical_tool(tool) for tool in prompt.tools)
    rewrites = tuple(
        Rewrite("schema_keys", f"tools[{index}]", "sorted object keys")
        for index, (before, after) in enumerate(zip(prompt.tools, tools, strict=True))
        if _spelled(before) != _spelled(after)
    )
    return (msgspec.structs.replace(prompt, tools=tools), rewrites) if rewrites else (prompt, ())


@NORMALIZE_RULES.register("result_order")
def result_order(prompt: ChatPrompt) -> Rewritten:
    """Put results of parallel calls in the order of the calls; results without a known id stay behind."""
    messages = list(prompt.messages)
    rewrites: list[Rewrite] = []
    for index, message in enumerate(prompt.messages):
        if len(message.tool_calls) < 2:
            continue
        end = index + 1
        while end < len(messages) and messages[end].role == "tool":
            end += 1
        order = {call.id: number for number, call in enumerate(message.tool_calls) if call.id}
        results = messages[index + 1 : end]
        in_order = sorted(results, key=lambda result: order.get(result.tool_call_id or "", len(order)))
        if in_order != results:
            messages[index + 1 : end] = in_order
            where = f"messages[{index + 1}]"
            rewrites.append(
                Rewrite("result_order", where, f"put {len(results)} results in the order of calls")
            )
    if not rewrites:
        return prompt, ()
    return msgspec.structs.replace(prompt, messages=tuple(messages)), tuple(rewrites)


def volatile(pattern: str, replacement: str) -> Rule:
    """Return a rule that replaces what matches in system messages by a fixed text.

    Opt-in: the model no longer sees what was there. Raises ConfigError when the pattern is none.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"{pattern!r} is no regular expression: {error}") from error

    def rule(prompt: ChatPrompt) -> Rewritten:
        messages: list[Message] = []
        rewrites: list[Rewrite] = []
        for index, message in enumerate(prompt.messages):
            content, count = message.content, 0
            if message.role == "system":
                # a function, so that a backslash in the text means itself
                content, count = compiled.subn(lambda _: replacement, message.content)
            if content == message.content:
                messages.append(message)
                continue
            what = f"replaced {count} matches of {pattern!r} by {replacement!r}"
            rewrites.append(Rewrite("volatile", f"messages[{index}].content", what))
            messages.append(msgspec.structs.replace(message, content=content))
        if not rewrites:
            return prompt, ()
        return msgspec.structs.replace(prompt, messages=tuple(messages)), tuple(rewrites)

    return rule


def _tool_name(tool: dict[str, Any]) -> str:
    function = tool.get("function")
    return str(function.get("name", "")) if isinstance(function, dict) else ""


#: The order in which models have seen a tool's own keys; any others follow, sorted.
_TOOL_KEYS = ("type", "function", "name", "description", "parameters")

#: Keywords of JSON Schema whose value is data, not a schema: no `required` in there is a set.
_DATA = frozenset({"default", "const", "enum", "example", "examples"})


def _canonical_tool(tool: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _canonical_tool(value)
        if key == "function" and isinstance(value, dict)
        else _canonical(value, schema=key == "parameters")
        for key, value in sorted(tool.items(), key=_tool_key_rank)
    }


def _tool_key_rank(item: tuple[str, Any]) -> tuple[int, str]:
    key = item[0]
    return (_TOOL_KEYS.index(key) if key in _TOOL_KEYS else len(_TOOL_KEYS), key)


def _canonical(value: Any, *, schema: bool) -> Any:
    if isinstance(value, dict):
        return {
            key: _canonical_required(inner)
            if schema and key == "required"
            else _canonical(inner, schema=schema and key not in _DATA)
            for key, inner in sorted(value.items())
        }
    if isinstance(value, list):
        return [_canonical(inner, schema=schema) for inner in value]
    return value


def _canonical_required(value: Any) -> Any:
    """Return the names sorted; a property that happens to be called `required` is a schema."""
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return sorted(value)
    return _canonical(value, schema=True)


def _spelled(tool: dict[str, Any]) -> bytes:
    """Return the JSON text, since equal mappings may differ in order."""
    return msgspec.json.encode(tool)

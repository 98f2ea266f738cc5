r"""Rules that keep a prompt's prefix the same from request to request. Each is pure, named, optional.

What changes at the front of a prompt makes the rest of it new to the cache. Clients change more than they
need to: a line with a hash, tools in the order of a map, a clock. A rule removes one such change and reports
what it did as `Rewrite`s, so that a trace can show it.

    attribution    drop `x-anthropic-billing-header:` lines at the head of the system prompt
    tool_order     sort tools by name
    schema_keys    sort object keys inside tools, and `required`; other arrays keep their order
    result_order   put the results of parallel calls in the order of the calls, matched by id

`Volatile` is a rule made from a pattern of the user's own: a clock or a path in a system prompt gives way to a fixed
text, and may be said at the end of the conversation instead, where it costs the prefix nothing.

Why keys may be sorted: JSON objects have no order, and `required` is a set by definition of JSON Schema. The
order of `enum`, `oneOf` and `anyOf` is kept because models read it.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import msgspec

from omlx.config.problem import FieldError
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


class Volatile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What changes in system messages although it means little, and what becomes of it.

    Options:
        pattern: a regular expression; `^` and `$` are the ends of a line.
        replace: the fixed text that takes the place of each match; a backslash means itself.
        move: say each match at the end of the conversation, in a system message of its own.
    """

    pattern: str
    replace: str = ""
    move: bool = False

    def __post_init__(self) -> None:
        """Refuse what is no pattern, and one that matches everywhere."""
        try:
            matches_nothing = self.compiled.search("") is not None
        except re.error as error:
            raise FieldError("pattern", f"{self.pattern!r} is no regular expression: {error}") from error
        if matches_nothing:
            hint = "name at least one character of what changes"
            raise FieldError("pattern", f"{self.pattern!r} matches the empty text, which is everywhere", hint)

    @property
    def compiled(self) -> re.Pattern[str]:
        """Return the pattern; `re` keeps it."""
        return re.compile(self.pattern, re.MULTILINE)

    def __call__(self, prompt: ChatPrompt) -> Rewritten:
        """Apply the rule to the system messages that are there. Opt-in: the model sees another text."""
        messages, rewrites, moved = list(prompt.messages), [], []
        for index, message in enumerate(messages):
            if message.role != "system":
                continue
            found = [match[0] for match in self.compiled.finditer(message.content)]
            # a function, so that a backslash in the text means itself
            content = self.compiled.sub(lambda _: self.replace, message.content)
            if content != message.content:
                moved += found
                rewrites.append(Rewrite("volatile", f"messages[{index}].content", self._what(len(found))))
                messages[index] = msgspec.structs.replace(message, content=content)
        if not rewrites:
            return prompt, ()
        if self.move:
            # an answer that was begun stays the last, so that the model goes on with it
            end = len(messages) - (messages[-1].role == "assistant")
            messages.insert(end, Message("system", "\n".join(text.strip() for text in moved)))
        return msgspec.structs.replace(prompt, messages=tuple(messages)), tuple(rewrites)

    def _what(self, count: int) -> str:
        times = "1 match" if count == 1 else f"{count} matches"
        end = ", now said at the end" if self.move else ""
        return f"replaced {times} of {self.pattern!r} by {self.replace!r}{end}"


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

"""Turn after turn: what a conversation has computed is reused as far as its template renders it alike."""

import json

import pytest
from structlog.testing import capture_logs

from omlx.text.tokenizer import FolderTokenizer
from tests.conftest import Folders
from tests.tiny import CHATML, QWEN3
from tests.trust.talk import (
    BLOCK,
    KINDS,
    prompt_tokens,
    prose,
    rendered,
    restored,
    said,
    script,
    small_server,
)

SYSTEM = {"role": "system", "content": prose(1, 60)}
#: How many tokens a turn may compute beyond what is new in it.
SLACK = 64


def asked(seed: int, words: int = 12) -> dict:
    """Return a user's message."""
    return {"role": "user", "content": prose(seed, words)}


def common(left: list[int], right: list[int]) -> int:
    """Return how many tokens two prompts share."""
    return next(
        (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
    )


@pytest.mark.parametrize("template", [CHATML, QWEN3], ids=["chatml", "drops reasoning"])
def test_ten_turns_compute_their_own_turn_alone(folder_of: Folders, kind, tmp_path, template):
    """G2: over ten turns, with reasoning dropped too, a turn computes at most itself and 64 tokens more.

    Half of them where no state has to be kept.
    """
    folder = folder_of(KINDS[kind], template=template)
    chat, before = [SYSTEM], 0
    with small_server(folder, tmp_path) as server:
        for turn in range(10 if kind == "hybrid" else 5):
            chat.append(asked(turn))
            text = prose(100 + turn, 8)
            script(server, folder, f"<think>\n{prose(200 + turn, 8)}\n</think>\n\n{text}")
            found = server.chat(chat, max_tokens=200)
            if turn:
                assert prompt_tokens(found) - restored(found) <= prompt_tokens(found) - before + SLACK
                assert restored(found) >= before - SLACK
            assert text == said(found).strip()
            before = prompt_tokens(found)
            chat.append({"role": "assistant", "content": text})


def test_a_second_edit_at_one_place_computes_what_stands_behind_it(folder_of: Folders, kind, tmp_path):
    """G2: where a prompt leaves a stored one a state is kept, so that the next one to leave there resumes there."""
    chat = [SYSTEM, {"role": "user", "content": prose(5, 80)}]
    edits = [
        [SYSTEM, {"role": "user", "content": f"{prose(5, 40)} number {n} {prose(6, 40)}"}] for n in "123"
    ]
    folder = folder_of(KINDS[kind])
    with small_server(folder, tmp_path) as server:
        server.chat(chat)
        _, *again = [server.chat(edit) for edit in edits]
    shared = common(rendered(folder, edits[0]), rendered(folder, edits[1]))
    assert [True, True] == [restored(found) >= shared - 8 for found in again]


def test_reasoning_that_is_dropped_costs_its_answer_alone(folder_of: Folders, kind, tmp_path):
    """C5: without its reasoning a turn is reused up to its prompt, with it the answer too."""
    folder = folder_of(KINDS[kind], template=QWEN3)
    first, text, thoughts = [SYSTEM, asked(2)], prose(3, 30), prose(4, 3 * BLOCK)
    with small_server(folder, tmp_path) as server:
        script(server, folder, f"<think>\n{thoughts}\n</think>\n\n{text}")
        found = server.chat(first, max_tokens=1000)
        spoken = found["usage"]["completion_tokens"]
        tool = {"role": "tool", "tool_call_id": "1", "content": "42"}
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        kept = {"role": "assistant", "content": text, "reasoning_content": thoughts, "tool_calls": [call]}
        with_it = server.chat([*first, kept, tool])
        without = server.chat([*first, {"role": "assistant", "content": text}, asked(5)])
    assert text == said(found)
    assert restored(without) >= prompt_tokens(found) - SLACK
    assert restored(without) <= prompt_tokens(found) + 1
    behind = prompt_tokens(found) - SLACK if kind == "hybrid" else prompt_tokens(found) + spoken - 2
    assert restored(with_it) >= behind


def test_an_empty_think_block_costs_the_generation_prompt_alone(folder_of: Folders, kind, tmp_path):
    """C6: with thinking off, the block that only the generation prompt has is all that the next turn loses."""
    folder, off = folder_of(KINDS[kind], template=QWEN3), {"enable_thinking": False}
    first, text = [SYSTEM, asked(2)], prose(3, 20)
    with small_server(folder, tmp_path) as server:
        script(server, folder, text)
        found = server.chat(first, max_tokens=200, chat_template_kwargs=off)
        following = [*first, {"role": "assistant", "content": text}, asked(4)]
        later = server.chat(following, chat_template_kwargs=off)
    assert text == said(found)
    generation = prompt_tokens(found) - common(
        rendered(folder, first, **off), rendered(folder, following, **off)
    )
    assert restored(later) >= prompt_tokens(found) - max(generation, 1) - 8


#: The tools stand before the last user message, wherever that is.
MOVING = """
{%- for message in messages %}
    {%- if loop.last and tools %}
        {%- for tool in tools %}{{- tool | tojson }}{%- endfor %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
"""


@pytest.mark.parametrize(("template", "warned"), [(MOVING, True), (CHATML, False), (QWEN3, False)])
def test_a_template_that_loses_its_head_at_each_turn_is_warned_of(
    folder_of: Folders, tmp_path, template, warned
):
    """C6: a template whose next turn parts from this one more than a block before its end is named at load."""
    folder = folder_of("llama", template=template)
    with capture_logs() as logs, small_server(folder, tmp_path) as server:
        server.runtime.preload().result()
    lines = [line for line in logs if line["event"] == "each turn loses more than its generation prompt"]
    assert warned == bool(lines)
    assert all(line["lost_tokens"] > 256 and line["model"] == "tiny" for line in lines)


def test_a_call_that_is_rendered_otherwise_keeps_both_branches(folder_of: Folders, kind, tmp_path):
    """C7: a call whose JSON the template spells in its own way costs that turn; all before it is reused."""
    folder = folder_of(KINDS[kind])
    tool = {
        "type": "function",
        "function": {"name": "read", "parameters": {"type": "object", "properties": {}}},
    }
    spelled = '{"name":"read","arguments":{"path":"a/\\u00e9.txt","depth":{"n":1.50,"all":[true,null]}}}'
    first = [SYSTEM, asked(2)]
    with small_server(folder, tmp_path) as server:
        script(server, folder, f"<tool_call>\n{spelled}\n</tool_call>")
        found = server.chat(first, max_tokens=400, tools=[tool])
        message = found["choices"][0]["message"]
        call = message["tool_calls"][0]
        result = {"role": "tool", "tool_call_id": call["id"], "content": prose(4, 20)}
        later = server.chat([*first, message, result], tools=[tool])
        repeated = server.chat(first, max_tokens=400, tools=[tool])
    assert "tool_calls" == found["choices"][0]["finish_reason"]
    assert {"path": "a/é.txt", "depth": {"n": 1.5, "all": [True, None]}} == json.loads(
        call["function"]["arguments"]
    )
    assert restored(later) >= prompt_tokens(found) - 1
    assert restored(repeated) == prompt_tokens(found) - 1
    assert call["function"] == repeated["choices"][0]["message"]["tool_calls"][0]["function"]


@pytest.mark.parametrize("ending", ["length", "stop string", "end", "call"])
def test_an_answer_is_reused_however_it_ended(folder_of: Folders, kind, tmp_path, ending):
    """An answer that the template renders as it was generated is a prefix of the next turn."""
    folder, text = folder_of(KINDS[kind]), prose(3, 40)
    tool = {
        "type": "function",
        "function": {"name": "read", "parameters": {"type": "object", "properties": {}}},
    }
    body = {
        "length": {"max_tokens": 30},
        "stop string": {"max_tokens": 200, "stop": [text.split(" ", 25)[25]]},
        "end": {"max_tokens": 200},
        "call": {"max_tokens": 200, "tools": [tool]},
    }[ending]
    if ending == "call":
        text = f'I look.\n<tool_call>\n{{"name": "read", "arguments": {{"path": "{prose(3, 20)}"}}}}\n</tool_call>'
    first = [SYSTEM, asked(2)]
    with small_server(folder, tmp_path) as server:
        script(server, folder, text)
        found = server.chat(first, **body)
        message = found["choices"][0]["message"]
        more = {"role": "tool", "tool_call_id": "1", "content": "42"} if ending == "call" else asked(4)
        later = server.chat([*first, message, more], tools=body.get("tools"))
    reasons = {"stop string": "stop", "end": "stop", "call": "tool_calls"}
    assert reasons.get(ending, "length") == found["choices"][0]["finish_reason"]
    end = prompt_tokens(found) + _shown(folder, found)
    assert restored(later) >= (prompt_tokens(found) - 1 if _cannot_cut(kind, ending) else end - 3)


def _shown(folder, found: dict) -> int:
    """Return how many tokens of an answer the client got to see."""
    message = found["choices"][0]["message"]
    if message.get("tool_calls"):
        return found["usage"]["completion_tokens"] - 1
    return len(FolderTokenizer(folder).encode(message["content"]).tokens)


def _cannot_cut(kind: str, ending: str) -> bool:
    """Tell whether the answer's end is behind what was shown: a state cannot be cut there."""
    return kind == "hybrid" and ending == "stop string"

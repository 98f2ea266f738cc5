"""What a turn loses is the generation prompt, unless the template moves things about."""

import pytest

from omlx.text.chat import ChatPrompt, Message
from omlx.text.tokenizer import FolderTokenizer
from omlx.text.turnover import lost_tokens
from tests.tiny import TEMPLATES, make_tokenizer

TALK = ChatPrompt((Message("user", "hi"),))


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("options", [{}, {"enable_thinking": False}, {"enable_thinking": True}])
def test_a_turn_loses_its_generation_prompt_at_most(tmp_path, name, options):
    """C6: with thinking on or off, no more than the generation prompt is lost, of any well-known template."""
    tokenizer = FolderTokenizer(make_tokenizer(tmp_path, TEMPLATES[name]))
    prompt = ChatPrompt(TALK.messages, template_options=options)
    with_it = tokenizer.render(prompt)
    without = tokenizer.render(prompt, add_generation_prompt=False)
    assert lost_tokens(tokenizer, options) <= len(tokenizer.encode(with_it[len(without) :]).tokens)


def test_a_head_that_is_worded_by_the_end_is_lost_whole(tmp_path):
    """A template that counts the messages in its first line keeps nothing from turn to turn."""
    template = "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}"
    assert lost_tokens(FolderTokenizer(make_tokenizer(tmp_path, template)), {}) > 256


def test_a_template_that_refuses_a_talk_is_not_judged(tmp_path):
    """Without a chat template, or where it raises, there is nothing to say."""
    assert lost_tokens(FolderTokenizer(make_tokenizer(tmp_path, None)), {}) is None

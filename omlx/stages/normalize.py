"""normalize: rewrite the prompt by named rules, so that its prefix stays the same from turn to turn."""

from typing import ClassVar

from omlx.config.problem import FieldError
from omlx.errors import ConfigError
from omlx.pipeline.stage import Lane, Services, Stage
from omlx.pipeline.state import State
from omlx.text.chat import ChatPrompt
from omlx.text.normalize import Volatile, find_rule, normalize


class NormalizeStage(Stage, frozen=True, tag="normalize"):
    """Rewrite a chat by named rules that keep its prefix stable. Every rewrite is reported.

    Options:
        rules: names of rules, applied in order.
        volatile: patterns of text that changes in system messages, applied after the rules; none by default, since
            the model then sees another text than was sent.
    """

    requires: ClassVar[tuple[str, ...]] = ("request",)
    assigns: ClassVar[tuple[str, ...]] = ("prompt", "rewrites")
    lane: ClassVar[Lane] = "host"

    rules: tuple[str, ...] = ("attribution", "tool_order", "schema_keys", "result_order")
    volatile: tuple[Volatile, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a name that no rule has."""
        for name in self.rules:
            try:
                find_rule(name)
            except ConfigError as error:
                raise FieldError("rules", error.message, error.hint) from error

    def run(self, state: State, services: Services) -> None:  # noqa: ARG002 - one signature for all stages
        """Apply the rules to a chat; leave text and tokens as they are."""
        prompt = state.request.prompt
        state.prompt = prompt
        if isinstance(prompt, ChatPrompt):
            state.prompt, state.rewrites = normalize(prompt, (*self.rules, *self.volatile))

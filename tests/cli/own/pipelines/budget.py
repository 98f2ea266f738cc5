"""A stage of one's own, beside the pipeline that uses it."""

from typing import ClassVar

from omlx.config.settings import PositiveInt
from omlx.errors import RequestError
from omlx.pipeline.stage import Services, Stage
from omlx.pipeline.state import State


class Budget(Stage, frozen=True, tag="budget"):
    """Refuse a prompt that is longer than the budget.

    Options:
        most_tokens: the longest prompt that is taken.
    """

    requires: ClassVar[tuple[str, ...]] = ("tokens",)
    assigns: ClassVar[tuple[str, ...]] = ("left_tokens",)

    most_tokens: PositiveInt = 8192

    def run(self, state: State, services: Services) -> None:
        """Assign what is left of the budget."""
        left = self.most_tokens - len(state.tokens)
        if left < 0:
            raise RequestError(
                f"the prompt is {-left} tokens over the budget", hint="start a new conversation"
            )
        state.left_tokens = left

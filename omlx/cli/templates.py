"""What chat templates lose from turn to turn, told by rendering two turns; without weights."""

from omlx.config.document import Document
from omlx.config.problem import Problem
from omlx.config.settings import Settings
from omlx.errors import ModelLoadError
from omlx.models.describe import local_folder
from omlx.stages.writeback import WritebackStage
from omlx.text.tokenizer import FolderTokenizer
from omlx.text.turnover import lost_tokens


def template_problems(document: Document, settings: Settings) -> list[Problem]:
    """Return a problem for each model whose template renders a prompt otherwise once it has been answered.

    More than a block must be lost: the generation prompt always is. Models that are not on this machine are not asked.
    """
    problems = []
    for name, model in settings.models.items():
        try:
            tokenizer = FolderTokenizer(local_folder(model.path))
        except ModelLoadError:
            continue
        lost = lost_tokens(tokenizer, model.template_options)
        if lost is not None and lost > WritebackStage().block_tokens:
            at = "template_options" if model.template_options else "path"
            message = (
                f"its chat template renders the last {lost} tokens of a prompt otherwise in the next turn"
            )
            hint = "each turn computes them again: use another template, or other template_options"
            problems.append(document.value_problem(("models", name, at), message, hint))
    return problems

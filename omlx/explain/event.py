"""An explanation as fields of a log event: figures, names and causes, never text of a prompt."""

from typing import Any

from omlx.pipeline.explanation import Explanation


def log_fields(explanation: Explanation) -> dict[str, Any]:
    """Return what one log line says of an explanation."""
    plan, difference, cause = explanation.plan, explanation.difference, explanation.cause
    fields: dict[str, Any] = {
        "model": explanation.model,
        "prompt_tokens": plan.prompt_tokens,
        "matched_tokens": plan.matched_tokens,
        "reused_tokens": plan.resume,
        "hot_tokens": plan.hot_tokens,
        "cold_tokens": plan.cold_tokens,
        "cause": cause.name if cause else None,
    }
    if difference is not None:
        fields |= {
            "differs_at": difference.token,
            "segment": difference.segment,
            "tool": difference.tool,
            "difference": difference.cause.name,
            "remedy": difference.cause.remedy,
        }
    return fields

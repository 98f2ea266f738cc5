"""Tool calls where the client has no place for them."""

import msgspec

from omlx.text.delta import ToolCallDelta


def call_as_text(call: ToolCallDelta) -> str:
    """Return a tool call as JSON text; its arguments stand as the model wrote them."""
    return f'{{"name": {msgspec.json.encode(call.name).decode()}, "arguments": {call.arguments}}}'

"""Fakes that ship: what stands in for the slow and the heavy in tests and demonstrations. No MLX.

fake_model    a Model of byte tokens           FakeExecutor   runs it; finds KV of other tokens
drive         a chain, on the calling thread   guarded        a stage held to its declaration
ScriptedBackend (`omlx.testing.backend`)       a whole backend that says what it is told
"""

from omlx.testing.drive import InlineLanes, drive, new_state, text_of
from omlx.testing.executor import FakeExecutor
from omlx.testing.guarded import GuardedState, UndeclaredAccessError, guarded
from omlx.testing.kv import fake_layout
from omlx.testing.model import fake_model
from omlx.testing.parser import PlainParser
from omlx.testing.sequence import FakeSequence
from omlx.testing.tokenizer import ByteTokenizer

__all__ = [
    "ByteTokenizer",
    "FakeExecutor",
    "FakeSequence",
    "GuardedState",
    "InlineLanes",
    "PlainParser",
    "UndeclaredAccessError",
    "drive",
    "fake_layout",
    "fake_model",
    "guarded",
    "new_state",
    "text_of",
]

"""fake_model: a Model that needs no weights."""

from omlx.pipeline.model import Model
from omlx.prefix.layout import Layout
from omlx.testing.kv import fake_layout
from omlx.testing.parser import PlainParser
from omlx.testing.tokenizer import END, ByteTokenizer
from omlx.text.chat import Prompt
from omlx.types import Fingerprint, Tokens


def fake_model(
    name: str = "fake",
    *,
    layout: Layout | None = None,
    cached: bool = True,
    window_tokens: int = 32_768,
    max_tokens: int | None = None,
) -> Model:
    """Return a model of byte tokens that a `FakeExecutor` runs; its name is its identity.

    `layout` is by default one group of full attention. With `cached` False its caches cannot be stored.
    """
    return Model(
        name=name,
        fingerprint=Fingerprint(f"fake-{name}"),
        layout=(layout or fake_layout()) if cached else None,
        window_tokens=window_tokens,
        eos_tokens=frozenset({END}),
        tokenizer=ByteTokenizer(),
        new_parser=_new_parser,
        uncached_reason=None if cached else "the fake was told so",
        max_tokens=max_tokens,
    )


def _new_parser(prompt: Prompt, tokens: Tokens, stop: tuple[str, ...]) -> PlainParser:  # noqa: ARG001 - the seam's
    return PlainParser(stop)

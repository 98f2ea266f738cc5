"""What stored prompts go on with where a prompt leaves them. Pure, over the index.

prompt   0 ....................... matched ......... its own way
blocks   |-- a --|-- b --|-- c ---+--- rest of c --|-- d --|
                                  └ the nearest stored prompt from here on
"""

from collections.abc import Iterator, Sequence

import numpy as np

from omlx.prefix.block import Block
from omlx.prefix.index import BlockIndex
from omlx.prefix.match import Step
from omlx.types import Fingerprint, Tokens, as_tokens


def stored_after(index: BlockIndex, steps: Sequence[Step], fingerprint: Fingerprint) -> Tokens:
    """Return the tokens with which the nearest stored prompt goes on after what `steps` agree on.

    `steps` are all blocks that a prompt runs through. Of several prompts that agree equally far, the longest is
    taken. None are returned when nothing goes on from there: the prompt continues what is stored.
    """
    position = max((step.end for step in steps), default=0)
    starts = list(_continuations(index, steps, position, fingerprint))
    ways = [way for way in starts if len(way)]
    return max(ways, key=len, default=as_tokens([]))


def elsewhere(index: BlockIndex, tokens: Tokens, fingerprint: Fingerprint) -> tuple[int, int]:
    """Return how many tokens agree under the best other fingerprint, and how many others there are."""
    others = {block.fingerprint for block in index.blocks()} - {fingerprint}
    ends = (step.end for other in others for step in index.walk(other, tokens))
    return max(ends, default=0), len(others)


def knows(index: BlockIndex, fingerprint: Fingerprint) -> bool:
    """Tell whether any block of a model is stored."""
    return any(block.fingerprint == fingerprint for block in index.blocks())


def _continuations(
    index: BlockIndex, steps: Sequence[Step], position: int, fingerprint: Fingerprint
) -> Iterator[Tokens]:
    if position == 0:
        roots = (block for block in index.blocks() if block.start == 0 and block.fingerprint == fingerprint)
        for root in roots:
            yield _path(index, root, 0)
    for step in steps:
        if step.end != position:
            continue
        if step.shared < step.block.num_tokens:
            yield _path(index, step.block, step.shared)
        for child in _children(index, step.block, position):
            yield _path(index, child, 0)


def _path(index: BlockIndex, block: Block, skip: int) -> Tokens:
    """Return a block's tokens after the first `skip`, and those of the longest way on from its end."""
    tokens = [block.tokens[skip:]]
    at: Block | None = block
    while at is not None:
        at = max(_children(index, at, at.end), key=lambda child: child.end, default=None)
        if at is not None:
            tokens.append(at.tokens)
    return np.concatenate(tokens)


def _children(index: BlockIndex, block: Block, start: int) -> list[Block]:
    found = (index.get(name) for name in index.children(block.name))
    return [child for child in found if child is not None and child.start == start]

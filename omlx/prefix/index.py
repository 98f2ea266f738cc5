"""BlockIndex: which stored blocks a sequence of tokens runs through.

Blocks are edges of a radix tree, but cuts may overlap, because a request cuts where *it* ends a segment or
leaves another's path:

    query    0 ........ 100 ......... 256 ..... 400
             |---- a: [0, 256) -------|-- c ----|
             |- b: [0, 100) -|
                             |-- d: [100, 300) of another sequence, shares 50 tokens --

A block can be used at position p when it starts at p, its `prefix` is the digest of the query's first p
tokens, and its first token is the query's next. How many of its tokens can be used is found by comparing
them: no digest is trusted for tokens that can be compared.

Why the walk is complete. Call a block *usable* as above, provided usable blocks cover everything before its
start. Take a usable block c that starts at p > 0 and whose parent q is present: the sequence that wrote c
agreed with the query up to p, and q holds the token before p, so q is usable too and shares its tokens up to
p. Hence each usable block is found from its parent, by induction from the blocks at 0. Blocks whose parent is
absent (or does not reach their start) are *loose*; their starts are tried as well. So it is enough to try, in
ascending order, 0, the starts of the children of usable blocks, and the starts of loose blocks: each position
costs one copy of a running digest and one dictionary lookup.
"""

import heapq
from collections.abc import Iterator
from typing import TypeVar

import numpy as np

from omlx.prefix.block import Block
from omlx.prefix.hasher import PrefixHasher, token_bytes
from omlx.prefix.match import Step
from omlx.types import BlockName, Fingerprint, Tokens

K = TypeVar("K")
V = TypeVar("V")

_TOKEN_BYTES = 4


class BlockIndex:
    """Hold blocks of all models by name, by parent, and by what they continue. Not thread-safe."""

    def __init__(self) -> None:
        self._blocks: dict[BlockName, Block] = {}
        #: prefix digest + first token -> blocks that begin so
        self._edges: dict[bytes, dict[BlockName, Block]] = {}
        #: parent (present or not) -> start -> children
        self._children: dict[BlockName, dict[int, set[BlockName]]] = {}
        #: blocks, past position 0, whose parent is absent or does not reach them
        self._loose: dict[Fingerprint, dict[BlockName, int]] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, name: BlockName) -> bool:
        return name in self._blocks

    def get(self, name: BlockName) -> Block | None:
        """Return the block of that name, or None."""
        return self._blocks.get(name)

    def blocks(self) -> Iterator[Block]:
        """Yield all blocks, in no promised order."""
        return iter(self._blocks.values())

    def children(self, name: BlockName) -> tuple[BlockName, ...]:
        """Return the blocks whose parent has that name, present or not."""
        starts = self._children.get(name, {})
        return tuple(child for names in starts.values() for child in names)

    def has_children(self, name: BlockName) -> bool:
        """Return whether any block names `name` as its parent."""
        return name in self._children

    def ancestors(self, name: BlockName | None) -> Iterator[BlockName]:
        """Yield `name` and its present ancestors, tail first."""
        while name is not None and (block := self._blocks.get(name)) is not None:
            yield name
            name = block.parent

    def insert(self, block: Block) -> bool:
        """Add a block; return False when it is already there."""
        if block.name in self._blocks:
            return False
        self._blocks[block.name] = block
        self._edges.setdefault(_edge_of(block), {})[block.name] = block
        if block.parent is not None:
            self._children.setdefault(block.parent, {}).setdefault(block.start, set()).add(block.name)
        self._judge(block)
        for child in self.children(block.name):
            self._judge(self._blocks[child])
        return True

    def remove(self, name: BlockName) -> bool:
        """Take a block out; its children stay, loose. Return False when it is not there."""
        block = self._blocks.pop(name, None)
        if block is None:
            return False
        _discard(self._edges, _edge_of(block), name)
        _discard(self._loose, block.fingerprint, name)
        if block.parent is not None:
            starts = self._children[block.parent]
            starts[block.start].discard(name)
            if not starts[block.start]:
                del starts[block.start]
            if not starts:
                del self._children[block.parent]
        for child in self.children(name):
            self._judge(self._blocks[child])
        return True

    def walk(self, fingerprint: Fingerprint, tokens: Tokens) -> tuple[Step, ...]:
        """Return every block that the tokens run through, by start.

        Each covered position lies in one of them.
        """
        data = token_bytes(tokens)
        hasher, hashed = PrefixHasher(fingerprint), 0
        starts = [0, *set(self._loose.get(fingerprint, {}).values())]
        heapq.heapify(starts)
        steps: list[Step] = []
        reach, last = 0, -1
        while starts and starts[0] <= reach:
            start = heapq.heappop(starts)
            if start == last:
                continue
            last = start
            hasher.update(tokens[hashed:start])
            hashed = start
            edge = hasher.digest() + data[_TOKEN_BYTES * start : _TOKEN_BYTES * (start + 1)]
            for block in self._edges.get(edge, {}).values():
                if block.fingerprint != fingerprint or block.start != start:
                    continue
                shared = _shared_tokens(block, data)
                steps.append(Step(block, shared))
                reach = max(reach, start + shared)
                for child_start in self._children.get(block.name, ()):
                    if start < child_start <= start + shared:
                        heapq.heappush(starts, child_start)
        return tuple(steps)

    def verify(self) -> list[str]:
        """Return every broken invariant, in words."""
        problems = []
        for name, block in self._blocks.items():
            if name not in self._edges.get(_edge_of(block), {}):
                problems.append(f"block {name.hex()} cannot be found by its prefix")
            if (name in self._loose.get(block.fingerprint, {})) != self._is_loose(block):
                problems.append(f"block {name.hex()} is wrongly marked loose or rooted")
        held = sum(len(edge) for edge in self._edges.values())
        linked = sum(len(names) for starts in self._children.values() for names in starts.values())
        if held != len(self._blocks):
            problems.append(f"{held} blocks by prefix, {len(self._blocks)} by name")
        if linked != sum(block.parent is not None for block in self._blocks.values()):
            problems.append("links from parents do not equal the blocks that have one")
        return problems

    def _judge(self, block: Block) -> None:
        """Mark a block as loose or not, after its parent came or went."""
        if self._is_loose(block):
            self._loose.setdefault(block.fingerprint, {})[block.name] = block.start
        else:
            _discard(self._loose, block.fingerprint, block.name)

    def _is_loose(self, block: Block) -> bool:
        if block.start == 0:
            return False
        parent = None if block.parent is None else self._blocks.get(block.parent)
        return parent is None or not parent.start < block.start <= parent.end


def _edge_of(block: Block) -> bytes:
    return block.prefix + block.token_bytes[:_TOKEN_BYTES]


def _shared_tokens(block: Block, data: bytes) -> int:
    """Return how many leading tokens of the block stand in `data` at its position."""
    there = data[_TOKEN_BYTES * block.start : _TOKEN_BYTES * block.end]
    if there == block.token_bytes:  # one memcmp; most blocks of a path end here
        return block.num_tokens
    query = np.frombuffer(there, dtype="<i4")
    differs = np.flatnonzero(query != block.tokens[: len(query)])
    return int(differs[0]) if len(differs) else len(query)


def _discard(table: dict[K, dict[BlockName, V]], key: K, name: BlockName) -> None:
    """Remove `name` from the group at `key`, and the group when it is empty."""
    group = table.get(key)
    if group is not None:
        group.pop(name, None)
        if not group:
            del table[key]

"""Finding the blocks that a prompt runs through."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from omlx.prefix.block import Block
from omlx.prefix.index import BlockIndex
from omlx.types import as_tokens
from tests.sequences import MODEL, OTHER_MODEL, branch, chain, digest_of, even


def walk(index: BlockIndex, tokens, fingerprint=MODEL):
    """Return (name, shared tokens) of every block found."""
    return {(s.block.name, s.shared) for s in index.walk(fingerprint, as_tokens(tokens))}


def reach(index: BlockIndex, tokens):
    """Return how many tokens the blocks found cover."""
    return max((s.end for s in index.walk(MODEL, as_tokens(tokens))), default=0)


def fill(*chains: list[Block]) -> BlockIndex:
    """Return an index of these blocks."""
    index = BlockIndex()
    for blocks in chains:
        for block in blocks:
            index.insert(block)
    return index


def naive_walk(blocks, tokens, fingerprint):
    """Every block that agrees with the prompt from its start on, while what is covered has no gap."""
    usable, end = set(), 0
    while True:
        found = set()
        for block in blocks:
            if block.fingerprint != fingerprint or block.start > end:
                continue
            if block.prefix != digest_of(tokens[: block.start], fingerprint):
                continue
            shared = 0
            for ours, theirs in zip(block.tokens.tolist(), tokens[block.start :], strict=False):
                if ours != theirs:
                    break
                shared += 1
            if shared:
                found.add((block.name, shared))
                end = max(end, block.start + shared)
        if found == usable:
            return usable
        usable = found


def test_whole_path_is_found():
    """A prompt runs through all blocks of a chain that it continues."""
    blocks = chain(range(40), [16, 32, 40])
    assert {(b.name, b.num_tokens) for b in blocks} == walk(fill(blocks), range(60))


def test_partial_block_is_used_up_to_the_difference():
    """Of a block that the prompt leaves in its middle, the tokens before the difference are shared."""
    first, second = chain(range(32), [16, 32])
    prompt = [*range(20), 99, 98]
    assert {(first.name, 16), (second.name, 4)} == walk(fill([first, second]), prompt)


def test_prompt_that_ends_inside_a_block():
    """A prompt that is a prefix of a stored sequence shares all its tokens."""
    assert 20 == reach(fill(chain(range(32), [16, 32])), range(20))


def test_block_that_begins_inside_another_is_found():
    """What a request that left another's block wrote from there on is found."""
    stored = chain(range(32), [16, 32])
    tokens = [*range(20), *range(100, 120)]
    fork = branch(tokens, 20, [40], stored[1])
    assert {(stored[0].name, 16), (stored[1].name, 4), (fork[0].name, 20)} == walk(fill(stored, fork), tokens)


def test_overlapping_cuts_reach_farthest():
    """With [0, 100) and [0, 256) both there, what continues either of them is found."""
    tokens = list(range(400))
    short, long = chain(tokens, [100, 300]), chain(tokens, [256, 400])
    assert 4 == len(walk(fill(short, long), tokens))
    assert 400 == reach(fill(short, long), tokens)
    assert 300 == reach(fill(short), tokens)


def test_child_of_a_removed_parent_is_found_over_another_cut():
    """A block whose parent has gone is found when other blocks cover the tokens before it."""
    tokens = list(range(400))
    (parent, child), (cover,) = chain(tokens, [100, 300]), chain(tokens, [150])
    index = fill([parent, child], [cover])
    index.remove(parent.name)
    assert 300 == reach(index, tokens)
    assert [] == index.verify()
    index.remove(cover.name)
    assert 0 == reach(index, tokens)
    index.insert(parent)
    assert 300 == reach(index, tokens)
    assert [] == index.verify()


def test_other_models_are_not_found():
    """A8: a prompt never runs through blocks of another fingerprint."""
    assert set() == walk(fill(chain(range(32), [32], OTHER_MODEL)), range(32))


def test_tokens_are_compared_not_trusted():
    """A block whose digest lies about its tokens is used only as far as its tokens agree."""
    true = chain(range(32), [32])[0]
    lie = Block(
        true.name,
        true.fingerprint,
        None,
        true.prefix,
        true.digest,
        0,
        32,
        as_tokens([*range(31), 7]).tobytes(),
    )
    assert {(lie.name, 31)} == walk(fill([lie]), range(32))


def test_children_and_ancestors():
    """Links lead from parents to children and back, tail first."""
    blocks = chain(range(48), even(3))
    index = fill(blocks)
    names = [b.name for b in blocks]
    assert (names[1],) == index.children(names[0])
    assert names[::-1] == list(index.ancestors(names[2]))
    assert [] == list(index.ancestors(None))


def test_insert_and_remove_are_idempotent():
    """A block is there once, and gone once."""
    (block,) = chain(range(8), [8])
    index = BlockIndex()
    assert [True, False] == [index.insert(block), index.insert(block)]
    assert [True, False] == [index.remove(block.name), index.remove(block.name)]
    assert 0 == len(index)


@st.composite
def edits(draw):
    """A few related sequences, cut at random, some continuing others.

    And the order in which blocks come and go.
    """
    rng = random.Random(draw(st.integers(0, 2**32)))
    blocks: list[Block] = []
    sequences = []
    for _ in range(draw(st.integers(1, 6))):
        if sequences and rng.random() < 0.8:
            base = rng.choice(sequences)
            start = rng.randrange(len(base) + 1)
            tokens = [*base[:start], *(rng.randrange(2) for _ in range(rng.randrange(12)))]
        else:
            start, tokens = 0, [rng.randrange(2) for _ in range(rng.randrange(1, 16))]
        cuts = sorted({*(rng.randrange(start, len(tokens) + 1) for _ in range(3)), len(tokens)} - {start})
        parents = [b for b in blocks if b.start < start <= b.end and b.prefix == digest_of(tokens[: b.start])]
        parents = [p for p in parents if p.tokens.tolist()[: start - p.start] == tokens[p.start : start]]
        if start and not parents:
            start, cuts = 0, [len(tokens)]
        if len(tokens) > start:
            made = branch(tokens, start, cuts, rng.choice(parents)) if start else chain(tokens, cuts)
            blocks += made
            sequences.append(tokens)
    unique = list({b.name: b for b in blocks}.values())
    rng.shuffle(unique)
    removed = {b.name for b in unique if rng.random() < 0.3}
    return unique, removed, sequences


@settings(max_examples=300, deadline=None)
@given(edits())
def test_walk_equals_the_naive_model(case):
    """Whatever was inserted and removed, in any order, the walk finds what a full search finds."""
    blocks, removed, sequences = case
    index = fill(blocks)
    for name in removed:
        index.remove(name)
    assert [] == index.verify()
    left = [b for b in blocks if b.name not in removed]
    for tokens in sequences:
        for prompt in (tokens, [*tokens[:-1], 9], [*tokens, 0, 1]):
            assert naive_walk(left, prompt, MODEL) == walk(index, prompt)

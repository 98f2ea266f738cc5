"""Where prefill chunks end: an absolute grid, so that a resumed run has the shapes of a cold one.

    0         512   segment ends   1024                n-1  n
    ├──────────┼──────┼───┼─────────┼───────────────────┤──┤
                                                      the last token is run by the first decode step

A cold run and a run resumed at any chunk end run the same chunks from there on. Matrix products are only
bit-equal between runs of equal shape, so this is what makes a restored answer equal to a computed one.
"""

from collections.abc import Iterable, Iterator


def chunk_ends(start: int, end: int, chunk_tokens: int, cuts: Iterable[int] = ()) -> Iterator[int]:
    """Yield the end of each chunk of `[start, end)`: grid points and cuts in between, then `end`."""
    inner = sorted(cut for cut in set(cuts) if start < cut < end)
    inner.append(end)
    position = start
    for cut in inner:
        while position < cut:
            grid = (position // chunk_tokens + 1) * chunk_tokens
            position = min(grid, cut)
            yield position


def grid_floor(position: int, chunk_tokens: int, cuts: Iterable[int] = ()) -> int:
    """Return the last chunk end at or before `position`."""
    grid = position // chunk_tokens * chunk_tokens
    return max([grid, *(cut for cut in cuts if cut <= position)])

"""The parts that pages are made of: the sheet around them, cards, tables, bars, both sides of a difference."""

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from html import escape
from importlib.resources import files

_QUOTED = re.compile(r"`([^`]+)`")


def sheet(title: str, facts: str, parts: Iterable[str]) -> str:
    """Return a whole page: no script, nothing from elsewhere."""
    style = files("omlx.explain").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f'<header><h1>{escape(title)}</h1>\n<p class="soft">{escape(facts)}</p></header>\n'
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )


def card(title: str, *content: str) -> str:
    """Return a titled part of a page."""
    return f'<section class="card">\n<h2>{escape(title)}</h2>\n' + "\n".join(content) + "\n</section>"


def words(text: str) -> str:
    """Return a sentence; what stands in backticks is code."""
    return _QUOTED.sub(r"<code>\1</code>", escape(text))


def figures(pairs: Iterable[tuple[str, str]]) -> str:
    """Return large numbers with their names below."""
    cells = (
        f'<div class="figure"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for value, name in pairs
    )
    return f'<div class="figures">{"".join(cells)}</div>'


def bar(*fills: tuple[str, float, float]) -> str:
    """Return a bar with parts of it filled: class, where it begins and how long it is, as shares of the whole."""
    parts = (
        f'<i class="{use}" style="left:{min(99.5, 100 * at):.2f}%;width:{100 * part:.2f}%"></i>'
        for use, at, part in fills
        if part > 0
    )
    return f'<div class="bar">{"".join(parts)}</div>'


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Sequence[int] = (),
    wide: Sequence[int] = (),
    bars: Sequence[int] = (),
    minor: Sequence[int] = (),
) -> str:
    """Return a table of cells that are HTML already; columns by what they hold, `minor` ones left out where narrow."""

    def kind(column: int) -> str:
        uses = (("n", numbers), ("wide", wide), ("bars", bars), ("minor", minor))
        found = " ".join(use for use, columns in uses if column in columns)
        return f' class="{found}"' if found else ""

    titles = "".join(f"<th{kind(at)}>{escape(title)}</th>" for at, title in enumerate(head))
    body = "".join(
        "<tr>" + "".join(f"<td{kind(at)}>{cell}</td>" for at, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><tr>{titles}</tr>{body}</table></div>'


def sides(ours: str, theirs: str) -> str:
    """Return two texts side by side, what is different in them marked."""
    left, right = _marked(ours, theirs)
    return (
        f'<div class="sides"><div class="side ours"><h3>this prompt</h3><pre>{left}</pre></div>'
        f'<div class="side"><h3>the other prompt</h3><pre>{right}</pre></div></div>'
    )


def _marked(ours: str, theirs: str) -> tuple[str, str]:
    steps = SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes()
    left = "".join(_part(ours[begin:end], same=use == "equal") for use, begin, end, _, _ in steps)
    return left, "".join(_part(theirs[begin:end], same=use == "equal") for use, _, _, begin, end in steps)


def _part(text: str, *, same: bool) -> str:
    return escape(text) if same or not text else f"<mark>{escape(text)}</mark>"


def legend(entries: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield what colours mean, by class."""
    yield '<div class="legend">'
    yield from (f'<span><i class="{use}"></i>{escape(name)}</span>' for use, name in entries)
    yield "</div>"

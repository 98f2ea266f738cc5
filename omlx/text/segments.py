r"""Find the segments of a prompt: which tokens are tools, system, each message, the generation prompt.

Where each content stands is found by `omlx.text.parts`, exactly and for any template. The text between two
contents belongs partly to each: `<|im_end|>\n` closes a message, `<|im_start|>user\n` opens the next. The gap is
cut where the wrapper of the message before ends (`omlx.text.wrappers`). A boundary therefore depends on what
comes before it; on what follows only where the template gives no other hold: tools and tool calls, whose text
has no probe at its end.

Cost: one full render of a new conversation, and at most a dozen renders of a few words; of one that goes on, a render
of what is new.
"""

from collections.abc import Iterator, Sequence
from itertools import takewhile

import numpy as np

from omlx.text.chat import ChatPrompt, Prompt
from omlx.text.parts import Part, locate, locate_more
from omlx.text.seams import Encoding, Tokenizer
from omlx.text.segment import Segment
from omlx.text.talks import Cut, Talk, TalkMemo
from omlx.text.wrappers import Wrappers


def find_segments(
    tokenizer: Tokenizer, prompt: Prompt, text: str, encoding: Encoding, memo: TalkMemo | None = None
) -> tuple[Segment, ...]:
    """Return the segments of `prompt`, contiguous from token 0 to the last; none for no tokens.

    `text` is the rendered prompt and `encoding` its tokens. A prompt that cannot be taken apart is one
    segment of role `prompt`, with the generation prompt apart where that is certain. `memo` remembers the
    conversation, and changes no segment.
    """
    whole = Cut(0, "prompt", "prompt")
    if not isinstance(prompt, ChatPrompt):
        return _segments([whole], encoding, text)
    talk = _taken_apart(tokenizer, prompt, text, memo)
    wrappers = Wrappers(tokenizer, prompt.template_options, talk.rendered)
    if memo and talk.parts:
        memo.keep(tokenizer, talk)
    cuts = [cut for made in talk.cuts for cut in made]
    cuts += _last_cut(talk.parts, text, wrappers)
    cuts = cuts or [whole]
    generation = _generation_start(talk.parts, text, wrappers)
    if generation is not None:
        cuts.append(Cut(generation, "generation", "generation prompt"))
    return _segments(cuts, encoding, text)


def _taken_apart(tokenizer: Tokenizer, prompt: ChatPrompt, text: str, memo: TalkMemo | None) -> Talk:
    """Return the parts and the cuts they begin with, found anew only behind what is remembered."""
    talk = memo.head(tokenizer, prompt, text) if memo else None
    more = locate_more(tokenizer, prompt, text, talk.parts) if talk else None
    if talk is None or more is None:
        talk = Talk(prompt, text, (), (), {})
        more = locate(tokenizer, prompt, text)
    before = talk.parts[-1] if talk.parts else None
    wrappers = Wrappers(tokenizer, prompt.template_options, talk.rendered)
    cuts = _cuts(more, text, wrappers, before)
    return Talk(prompt, text, (*talk.parts, *more), (*talk.cuts, *cuts), talk.rendered)


def _cuts(
    parts: Sequence[Part], text: str, wrappers: Wrappers, before: Part | None
) -> Iterator[tuple[Cut, ...]]:
    """Yield for each part the cuts up to it; none for one without content, which is one segment with the next."""
    unseen: list[Part] = []
    for part in parts:
        if part.end is None:
            unseen.append(part)
            yield ()
        else:
            yield tuple(_gap_cuts(_Gap(text, before, part, wrappers), unseen, part))
            before, unseen = part, []


def _last_cut(parts: Sequence[Part], text: str, wrappers: Wrappers) -> list[Cut]:
    """Return where the parts without content behind the last one with content begin; none when there are none."""
    unseen = [*takewhile(lambda part: part.end is None, reversed(parts))][::-1]
    if not unseen or len(unseen) == len(parts):
        return []
    return [_joint(unseen, _Gap(text, parts[-1 - len(unseen)], None, wrappers).closed)]


class _Gap:
    """The text between two contents.

    Attributes:
        closed: the character where the part before ends, as far as its wrapper can be seen.
        sure: its whole wrapper was seen.
        opened: the character where the part after begins, or None when its wrapper is not seen.
    """

    def __init__(self, text: str, before: Part | None, after: Part | None, wrappers: Wrappers) -> None:
        self.before = before
        begin = (before.end if before else None) or 0
        stop = len(text) if after is None else after.end if after.start is None else after.start
        gap = text[begin:stop]
        closing = wrappers.closing(before.kind) if before and before.kind != "calls" else ""
        closings = [closing, before.tail + closing] if before and closing else []
        whole = [len(closing) for closing in closings if gap.startswith(closing)]
        self.sure = bool(whole)
        self.closed = begin + max(whole or [_common(gap, closing) for closing in closings], default=0)
        opening = wrappers.opening(after.kind) if after and after.start is not None else ""
        openings = [opening, opening + after.lead] if after and opening else []
        self.opened = next(
            (begin + len(gap) - len(opening) for opening in openings if gap.endswith(opening)), None
        )
        if before and before.kind == "tools" and self.opened is None:
            self.closed = begin + len(gap)  # the rest of the schemas


def _common(text: str, other: str) -> int:
    """Return how many characters the two begin with alike."""
    pairs = zip(text, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _gap_cuts(gap: _Gap, unseen: Sequence[Part], part: Part) -> Iterator[Cut]:
    """Yield the cuts between two contents, or up to the first one."""
    own = Cut(gap.opened or 0, part.role, part.label)
    apart = gap.opened is not None and gap.opened > gap.closed
    if gap.before is None:
        # before the first user message a template may put a system message of its own
        before = _joint(unseen, 0) if unseen else Cut(0, "system", "system (of the template)")
        yield from (before, own) if apart else (_joint([*unseen, part], 0),)
    elif unseen:
        yield from (_joint(unseen, gap.closed), own) if apart else (_joint([*unseen, part], gap.closed),)
    elif gap.opened is None or gap.sure:
        yield own._replace(at=gap.closed)
    else:
        yield own


def _joint(parts: Sequence[Part], at: int) -> Cut:
    first, last = parts[0], parts[-1]
    label = first.label if first is last else f"{first.label} to {last.label}"
    return Cut(at, first.role, label)


def _generation_start(parts: Sequence[Part], text: str, wrappers: Wrappers) -> int | None:
    """Return the character where the generation prompt begins, or None when it cannot be told."""
    floor = max((part.end or 0 for part in parts), default=0)
    generation = wrappers.generation()
    if generation and text.endswith(generation) and len(text) - len(generation) >= floor:
        return len(text) - len(generation)
    if parts and parts[-1].end is not None:
        gap = _Gap(text, parts[-1], None, wrappers)
        return gap.closed if gap.sure else None
    return None


def _segments(cuts: list[Cut], encoding: Encoding, text: str) -> tuple[Segment, ...]:
    """Return the cuts as token ranges; empty ones and a lone first token (beginning of text) are left out."""
    num_tokens = len(encoding.tokens)
    starts = _tokens_at([cut.at for cut in cuts], encoding, text)
    if len(cuts) > 1 and starts[1] == 1:
        cuts, starts = cuts[1:], [0, *starts[2:]]
    segments = []
    for cut, start, end in zip(cuts, starts, [*starts[1:], num_tokens], strict=True):
        if start < end:
            segments.append(Segment(cut.role, cut.label, start, end))
    return tuple(segments)


def _tokens_at(chars: list[int], encoding: Encoding, text: str) -> list[int]:
    """Return for each character the first token that begins there, or the one that the character lies inside."""
    if not len(encoding.starts):
        return [0] * len(chars)
    around = np.searchsorted(encoding.starts, chars, side="right") - 1
    first = np.searchsorted(encoding.starts, encoding.starts[around], side="left")
    first[np.asarray(chars) <= 0] = 0
    first[np.asarray(chars) >= len(text)] = len(encoding.tokens)
    return [int(token) for token in first]

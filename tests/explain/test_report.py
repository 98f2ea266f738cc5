"""The words of explanations, whole."""

import re
from html.parser import HTMLParser

import msgspec
import pytest

from omlx.explain.amounts import seconds, share, size
from omlx.explain.later import live_page, session_page
from omlx.explain.live import event_line, live_report, session_report
from omlx.explain.page import trace_page
from omlx.explain.paint import Paint, names
from omlx.explain.report import WIDTH, report
from omlx.explain.session import CauseCost, Session, Turn
from omlx.explain.sheet import sides, words
from omlx.pipeline.cost import Plan
from omlx.pipeline.explanation import (
    BlockOutlook,
    Cause,
    Difference,
    Eviction,
    Explanation,
    SegmentOutlook,
    StageOutlook,
    Writes,
)
from omlx.pipeline.timeline import RequestTrace, Span, StageEvent
from omlx.text.delta import Usage
from omlx.text.normalize import Rewrite

PARTS = Difference(
    token=9_100,
    segment="message 7 (user)",
    role="user",
    tool=None,
    char=31_020,
    segment_char=12,
    lost_tokens=300,
    cause=Cause(
        "clock", "a date or a time has moved on", "let the client say it in the newest message, or not at all"
    ),
    ours="10:02 <b>now</b>",
    theirs="09:41 then",
)
PLAN = Plan(
    10_000, 9_100, 9_100, 9_000, 100, 9_000 * 1024, 100 * 1024, 0.02, 1.8, 20.0, "restore", "all is reused"
)
EXPLANATION = Explanation(
    source="server",
    model="coder",
    fingerprint="f" * 32,
    pipeline="default",
    prompt_tokens=10_000,
    prompt_chars=34_000,
    rewrites=tuple(Rewrite("schema_keys", f"tools[{at}]", "sorted object keys") for at in range(3)),
    segments=(
        SegmentOutlook("system", "system", 0, 9_000, 30_000, 9_000, "0a" * 16),
        SegmentOutlook("user", "message 7 (user)", 9_000, 9_990, 3_980, 100, "0b" * 16),
        SegmentOutlook("generation", "generation prompt", 9_990, 10_000, 20, 0, "0c" * 16),
    ),
    blocks=(
        BlockOutlook(0, 9_000, "hot", 9_000 * 1024),
        BlockOutlook(9_000, 9_100, "cold", 100 * 1024),
        BlockOutlook(9_100, 9_400, "lost", 0),
        BlockOutlook(9_400, 10_000, "miss", 600 * 1024),
    ),
    stages=(
        StageOutlook("normalize", "host", None, "3 rewrites"),
        StageOutlook("tokenize", "host", 0.01, "10,000 tokens of 34,000 characters"),
        StageOutlook("prefill", "device", 1.82, "restores 9,100 tokens, computes 900"),
    ),
    plan=PLAN,
    writes=Writes(3, 600, 600 * 1024),
    evictions=(Eviction("hot", 12, 3 * 1024**2), Eviction("cold", 0, 0, refused=True)),
    difference=PARTS,
    cause=Cause(
        "evicted", "the prompt is known, but records of it were evicted or lost", "give the cache more room"
    ),
    notes=("no times: nothing has been measured for this model yet",),
)
TRACE = RequestTrace(
    id="chatcmpl-1",
    model="coder",
    arrived=0.0,
    total_s=2.0,
    spans=(Span("tokenize", 0.0, 0.01, 0.01), Span("prefill", 0.02, 1.8, 1.7), Span("decode", 1.8, 2.0, 0.2)),
    usage=Usage(10_000, 9_100, 9_000, 100, 900, 12),
    hot_bytes=9_000 * 1024,
    cold_bytes=100 * 1024,
    written=Writes(4, 0, 620 * 1024),
    plan=PLAN,
)
SESSION = Session(
    (Turn(1, 9_400, None, 0, None), Turn(2, 9_600, 1, 9_400, None), Turn(3, 10_000, 2, 9_100, PARTS)),
    (CauseCost("clock", 1, 300, "let the client say it in the newest message, or not at all"),),
)

REPORT = """\
POST /v1/chat/completions  to model 'coder', pipeline 'default'
10,000 tokens, 34,000 characters; index of the running server: RAM and disk

PLAN   restore 9,100 tokens (91 %), compute 900; about 1.8 s, a cold run 20.0 s
       all is reused

  ██████████████████████████████████████████████████████████████████████████████████████▓▒▒▒░░░░░░
  █ from RAM: 9,000 in 1 block, 8.8 MiB            ▓ from disk: 100 in 1 block, 100 KiB
  ▒ known, not usable: 300 in 1 block              ░ to compute: 600 in 1 block, 600 KiB

WHY    the prompt is known, but records of it were evicted or lost [evicted]
       mend: give the cache more room
PARTS  from the nearest stored prompt at token 9,100 of 10,000: message 7 (user), character 12
       why:  a date or a time has moved on [clock]
       mend: let the client say it in the newest message, or not at all
       cost: 300 tokens of the other prompt are of no use from there on
       here:  '10:02 <b>now</b>'
       there: '09:41 then'

SEGMENT                                      tokens     from  characters  reused    digest
  system                                      9,000        0      30,000  ■■■■■■■■  0a0a0a0a0a0a0a0a
  message 7 (user)                              990    9,000       3,980  ■·······  0b0b0b0b0b0b0b0b
  generation prompt                              10    9,990          20  ········  0c0c0c0c0c0c0c0c

STAGE           lane      estimate
  normalize     host             -   3 rewrites
                                     schema_keys at tools[0] and 2 other places: sorted object keys
  tokenize      host         10 ms   10,000 tokens of 34,000 characters
  prefill       device       1.8 s   restores 9,100 tokens, computes 900
  until the answer begins    1.8 s

ROOM   RAM: 12 records, 3.0 MiB, would be evicted
ROOM   disk: the new blocks do not fit; some of them will not be kept

note: no times: nothing has been measured for this model yet
"""

LIVE = """\
chatcmpl-1  to model 'coder'
10,000 tokens in, 12 tokens out, 2.0 s in all

                                      plan                  fact
  tokens from RAM                    9,000                 9,000
  tokens from disk                     100                   100
  tokens computed                      900                   900
  bytes from RAM                   8.8 MiB               8.8 MiB
  bytes from disk                  100 KiB               100 KiB
  fetch and prefill                  1.8 s                 1.7 s
  written                                -     4 blocks, 620 KiB

STAGE                began    worked   time
  tokenize             0 s     10 ms   █·······································
  prefill            20 ms     1.7 s   ████████████████████████████████████····
  decode             1.8 s    200 ms   ····································████
"""

TURNS = """\
3 requests, 29,000 tokens of prompts
18,500 of them (64 %) stand in an earlier prompt in the same place

turn   tokens   shared   parts from an earlier prompt
   1    9,400        0   shares nothing with an earlier one
   2    9,600    9,400   continues turn 1
   3   10,000    9,100   turn 2 at message 7 (user): clock, 300 lost
                  here:  '10:02 <b>now</b>'
                  there: '09:41 then'

CAUSE              turns  tokens lost   what would mend it
  clock                1          300   let the client say it in the newest message, or not at all
"""


def test_the_report_of_a_trace():
    """A trace reads as plan, reason, segments, stages and room, in that order."""
    assert REPORT == report(EXPLANATION, "POST /v1/chat/completions")


def test_the_report_of_a_finished_request():
    """Plan and fact stand side by side, and stages where they were in time."""
    assert LIVE == live_report(TRACE)


def test_the_report_of_a_session():
    """A session reads turn by turn, then by cause."""
    assert TURNS == session_report(SESSION)


def test_lines_fit_the_page():
    """No line is wider than the page."""
    lines = "\n".join((report(EXPLANATION, "x"), live_report(TRACE), session_report(SESSION))).splitlines()
    assert [] == [line for line in lines if len(line) > WIDTH]


def test_colours_only_where_asked_for():
    """Without colours there is no escape code; with them, taking the codes out gives the same words."""
    painted = report(EXPLANATION, "POST /v1/chat/completions", Paint(colours=True))
    assert "\033" in painted
    assert REPORT == re.sub(r"\033\[\d+m", "", painted)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (
            StageEvent("chatcmpl-1", "coder", "arrived", 0.0),
            "    0.000 s  chatcmpl-1  coder             arrived",
        ),
        (
            StageEvent("chatcmpl-1", "coder", "ended", 1.25, "prefill", 1.2),
            "    1.250 s  chatcmpl-1  coder             prefill worked 1.2 s",
        ),
        (
            StageEvent("chatcmpl-1", "coder", "finished", 2.0, usage=Usage(10, 8, 8, 0, 2, 5)),
            "    2.000 s  chatcmpl-1  coder             finished 10 tokens in (8 cached), 5 out",
        ),
        (
            StageEvent("chatcmpl-1", "coder", "failed", 2.0, error="no room"),
            "    2.000 s  chatcmpl-1  coder             failed no room",
        ),
    ],
)
def test_an_event_is_a_line(event, words):
    """An event says when, which request, which model, and what."""
    assert words == event_line(event)


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, "-"), (0.0, "0 s"), (0.0002, "0.2 ms"), (0.25, "250 ms"), (12.34, "12.3 s"), (250.0, "250 s")],
)
def test_seconds_in_words(value, words):
    """Times have three digits at most, and a dash where none are known."""
    assert words == seconds(value)


def test_amounts_in_words():
    """Sizes take the largest unit; a share is never rounded to all or to nothing."""
    assert ["0 B", "1023 B", "1.5 KiB", "100 MiB"] == [size(n) for n in (0, 1023, 1536, 100 * 1024**2)]
    assert ["0 %", "1 %", "99.9 %", "100 %", "0 %"] == [
        share(*pair) for pair in ((0, 9), (1, 9999), (99_999, 100_000), (7, 7), (0, 0))
    ]


class _Page(HTMLParser):
    """Notes every tag that is not closed, and every attribute that would load something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in {"meta", "br"}:
            self.open.append(tag)
        self.loads += [name for name, _ in attrs if name in {"src", "href", "srcset"}]

    def handle_endtag(self, tag):
        assert tag == self.open.pop()


@pytest.mark.parametrize(
    "page",
    [trace_page(EXPLANATION, "/v1/messages"), session_page(SESSION), live_page(TRACE)],
    ids=["trace", "session", "live"],
)
def test_a_page_stands_by_itself(page):
    """A page is well-formed, escapes what prompts say, loads nothing and serves both colour schemes."""
    parser = _Page()
    parser.feed(page)
    assert ([], []) == (parser.open, parser.loads)
    assert [] == re.findall(r"https?://|@import|url\(|<script", page)
    assert "prefers-color-scheme: dark" in page
    assert "<b>now" not in page
    assert "width=device-width" in page


def test_what_is_different_is_marked():
    """Of two texts beside each other the letters that differ are marked on either side, and escaped."""
    shown = sides("at 10:41 <b>", "at 10:57 <b>")
    assert "at 10:<mark>41</mark> &lt;b&gt;" in shown
    assert "at 10:<mark>57</mark> &lt;b&gt;" in shown


def test_code_in_a_sentence_is_code():
    """What stands in backticks is set as code, and nothing of a sentence is taken for HTML."""
    assert "use <code>--show-text</code> &amp; &lt;i&gt;" == words("use `--show-text` & <i>")


def test_what_is_not_restored_is_called_so():
    """Under a plan that restores nothing, blocks in RAM and on disk are said to be there, not to come from there."""
    unused = msgspec.structs.replace(EXPLANATION.plan, resume=0)
    assert ("in RAM, not used", "on disk, not used") == (names(unused)["hot"], names(unused)["cold"])
    assert "from RAM" == names(EXPLANATION.plan)["hot"]

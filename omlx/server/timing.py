"""Where a request's time went, in a response header for whoever asks: `x-omlx-timings: 1`.

    Server-Timing: queue;dur=0.1, tokenize;dur=4.2, segment;dur=5.1, lookup;dur=0.3, fetch;dur=1.9, ...

The parts are in milliseconds, as browsers and proxies read this header. An answer that is not streamed has all of them.
A stream's headers go out before the prompt is computed, so they have the parts up to there (and no such header when
the request still waits at that time); the stream then ends with a usage chunk, whether it was asked for or not, whose
`omlx.seconds` has every part.
"""

import re
from collections.abc import Mapping, Sequence

from omlx.text.delta import Delta, Finished, Started

REQUEST_HEADER = "x-omlx-timings"
_NO_TOKEN = re.compile(r"[^\w.-]", re.ASCII)


def wants_timings(headers: Mapping[str, str]) -> bool:
    """Tell whether a request asks for its timings."""
    return headers.get(REQUEST_HEADER, "").strip().lower() in {"1", "true", "yes"}


def timing_headers(asked: Mapping[str, str], said: Sequence[Delta | None]) -> dict[str, str]:
    """Return the header for a request with the headers `asked`, of the last of the deltas that knows its seconds."""
    known = [delta.seconds for delta in said if isinstance(delta, Started | Finished) and delta.seconds]
    if not known or not wants_timings(asked):
        return {}
    parts = (f"{_NO_TOKEN.sub('_', name)};dur={1000 * spent:.3f}" for name, spent in known[-1].items())
    return {"server-timing": ", ".join(parts)}

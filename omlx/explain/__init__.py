"""Explain: what a request would do and why, what happened to one that is over, and the words for both.

    dry         walk the chain up to what touches disk or device      disk        the cold tier, looked at only
    chain       blocks, segments, stages, writes, evictions           nearest     what stored prompts go on with
    difference  where two prompts part                                causes      why, and what would mend it
    explainer   all of it as one `Explanation`                        session     a session turn by turn
    report      for people on a terminal     live  plan beside fact   page        for a browser

Everything is plain Python over values; only `disk` reads files, and nothing writes. No MLX.
"""

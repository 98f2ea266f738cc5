"""The line of every key is found, whatever TOML allows between the keys."""

import textwrap
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlx.config.lines import KeyPath, Span, Spot, key_lines, key_spots

CASES: dict[str, tuple[str, dict[KeyPath, int]]] = {
    "tables and keys": (
        """\
        # a comment
        top = 1

        [cache]  # [not.a.header]
        hot = "4GiB"
        """,
        {("top",): 2, ("cache",): 4, ("cache", "hot"): 5},
    ),
    "dotted keys": (
        """\
        [models.coder]
        stages . prefill.chunk_tokens = 512
        stages.prefill.exact = true
        """,
        {
            ("models",): 1,
            ("models", "coder"): 1,
            ("models", "coder", "stages"): 2,
            ("models", "coder", "stages", "prefill", "chunk_tokens"): 2,
            ("models", "coder", "stages", "prefill", "exact"): 3,
        },
    ),
    "quoted keys": (
        """\
        [models."qwen3.5 [fast]"]
        "path" = 'a = b'
        'ali.ases' = ["]", '[x]']
        "caf\\u00e9 \\"x\\"" = 1
        [ "a" . 'b]' ]
        k = 1
        """,
        {
            ("models", "qwen3.5 [fast]"): 1,
            ("models", "qwen3.5 [fast]", "path"): 2,
            ("models", "qwen3.5 [fast]", "ali.ases"): 3,
            ("models", "qwen3.5 [fast]", 'caf\u00e9 "x"'): 4,
            ("a", "b]"): 5,
            ("a", "b]", "k"): 6,
        },
    ),
    "arrays of tables, nested": (
        """\
        [[stage]]
        use = "a"
        [[stage]]
        use = "b"
        [stage.options]
        deep = 1
        [[stage.rule]]
        name = "r0"
        [[stage.rule]]
        name = "r1"
        [[stage]]
        [[stage.rule]]
        name = "r2"
        """,
        {
            ("stage",): 1,
            ("stage", 0, "use"): 2,
            ("stage", 1): 3,
            ("stage", 1, "use"): 4,
            ("stage", 1, "options"): 5,
            ("stage", 1, "options", "deep"): 6,
            ("stage", 1, "rule", 0): 7,
            ("stage", 1, "rule", 0, "name"): 8,
            ("stage", 1, "rule", 1, "name"): 10,
            ("stage", 2): 11,
            ("stage", 2, "rule", 0, "name"): 13,
        },
    ),
    "inline tables and arrays of them": (
        """\
        sampling = { temperature = 0.7, "top.p" = 0.8, deep = { k = 1 } }
        stage = [
            # { use = "not this" },
            { use = "a" }, { use = "b", x = [
                1, 2 ] },
            { use = "c" },
        ]
        after = 1
        """,
        {
            ("sampling",): 1,
            ("sampling", "temperature"): 1,
            ("sampling", "top.p"): 1,
            ("sampling", "deep", "k"): 1,
            ("stage",): 2,
            ("stage", 0, "use"): 4,
            ("stage", 1, "use"): 4,
            ("stage", 1, "x", 1): 5,
            ("stage", 2, "use"): 6,
            ("after",): 8,
        },
    ),
    "multi-line strings that look like TOML": (
        '''\
        a = """
        [not.a.header]
        not_a_key = 1
        \\"""
        still = "inside"
        """
        b = \'\'\'
        [[nor.this]]
        nor = 1\'\'\'
        c = """one ""quoted"" word"""
        d = """ends in quotes"""""
        e = \'\'\'ends in quotes\'\'\'\'\'
        f = ""
        g = \'\'
        [real]
        key = 1
        ''',
        {
            ("a",): 1,
            ("b",): 7,
            ("c",): 10,
            ("d",): 11,
            ("e",): 12,
            ("f",): 13,
            ("g",): 14,
            ("real",): 15,
            ("real", "key"): 16,
        },
    ),
    "multi-line arrays with comments": (
        """\
        rules = [
            "a",  # ] = [x]
            "[header]",
            "k = v",
            [1,
             2],
        ]
        when = 1979-05-27 07:32:00  # a date
        neg = -inf
        next = true
        """,
        {
            ("rules",): 1,
            ("rules", 0): 2,
            ("rules", 2): 4,
            ("rules", 3, 1): 6,
            ("when",): 8,
            ("neg",): 9,
            ("next",): 10,
        },
    ),
    "a table named before and after its part": (
        """\
        [a.b]
        x = 1
        [a]
        y = 2
        [c]
        [c.d]
        """,
        {("a",): 3, ("a", "b"): 1, ("a", "y"): 4, ("c",): 5, ("c", "d"): 6},
    ),
    "nothing": ("# only a comment", {}),
    "no new line at the end": ("a = 1\nb = 2", {("a",): 1, ("b",): 2}),
}


@pytest.mark.parametrize("case", CASES)
def test_each_key_has_its_line(case):
    """Headers, keys and elements are found where they stand, and nothing is found where there is none."""
    text, expected = CASES[case]
    text = textwrap.dedent(text)
    tomllib.loads(text)
    found = key_lines(text)
    assert expected == {path: found.get(path) for path in expected}
    assert _paths(tomllib.loads(text)) == set(found)


@pytest.mark.parametrize("case", CASES)
def test_windows_line_ends_change_nothing(case):
    """A file with carriage returns has the same lines."""
    text = textwrap.dedent(CASES[case][0])
    assert key_lines(text) == key_lines(text.replace("\n", "\r\n"))


def _paths(value: object, at: KeyPath = ()) -> set[KeyPath]:
    """Return the path of everything in a parsed document."""
    here = {at} if at else set()
    if isinstance(value, dict):
        return here.union(*(_paths(inner, (*at, key)) for key, inner in value.items()))
    if isinstance(value, list):
        return here.union(*(_paths(inner, (*at, index)) for index, inner in enumerate(value)))
    return here


_KEYS = st.sampled_from(["a", "b", '"c.d"', "'e]'", '"f\\"g"'])
_SCALARS = st.sampled_from(
    ["1", '"x"', "'[y]'", '"""\n[z]\nk = 1\n"""', "'''#'''", "1979-05-27", "-1.5e3", "true"]
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[\n" + "".join(f"  {i}, # ]\n" for i in items) + "]")
        | st.dictionaries(_KEYS, inner, max_size=2).map(
            lambda table: "{ " + ", ".join(f"{key} = {value}" for key, value in table.items()) + " }"
        )
    ),
    max_leaves=6,
)


@given(
    st.dictionaries(_KEYS, _VALUES, max_size=4),
    st.lists(st.dictionaries(_KEYS, _VALUES, max_size=2), max_size=3),
)
def test_any_document_has_a_line_for_all_it_says(top, stages):
    """For every valid document, the paths that have a line are exactly the paths of its values."""
    lines = [f"{key} = {value}" for key, value in top.items()]
    for table in stages:
        lines += ["[[stage]] # [x]", *(f"{key} = {value}" for key, value in table.items())]
    text = "\n".join(lines)
    assert _paths(tomllib.loads(text)) == set(key_lines(text))


def test_keys_and_values_stand_where_they_stand():
    """Key and value have line, column and length; of a value on several lines, its first character counts."""
    text = textwrap.dedent("""\
        [models."x y"]
          path =   'o/n'  # comment
        aliases = [ "a",
            3 ]
        sampling = { top_k = 5, "top.p" = 0.5 }
        [[stage]]
        caf = 1
        """)
    spots = key_spots(text)
    model: KeyPath = ("models", "x y")
    assert Span(1, 9, 5) == spots[model].key == spots[model].value
    assert Spot(Span(2, 3, 4), Span(2, 12, 5)) == spots[(*model, "path")]
    assert Spot(Span(3, 1, 7), Span(3, 11, 1)) == spots[(*model, "aliases")]
    assert Spot(Span(4, 5, 1), Span(4, 5, 1)) == spots[(*model, "aliases", 1)]
    assert Spot(Span(5, 14, 5), Span(5, 22, 1)) == spots[(*model, "sampling", "top_k")]
    assert Spot(Span(5, 25, 7), Span(5, 35, 3)) == spots[(*model, "sampling", "top.p")]
    assert Span(6, 3, 5) == spots[("stage", 0)].key


@given(
    st.dictionaries(_KEYS, _SCALARS.filter(lambda value: "\n" not in value), min_size=1, max_size=4),
)
def test_what_stands_at_a_spot_is_what_is_meant(table):
    """The text at a key's and a value's place is the key and the value, whatever they are."""
    text = "".join(f"  {key}  =  {value}  # x\n" for key, value in table.items())
    lines = text.split("\n")
    found = [
        tuple(lines[span.line - 1][span.column - 1 : span.column - 1 + span.length] for span in spot)
        for spot in key_spots(text).values()
    ]
    assert list(table.items()) == found

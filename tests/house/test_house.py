"""The house rules hold, and each checker of them is shown to find what it is for."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import imports, shape, words
from tests.house.source import REPOSITORY, Module, package, read_modules

#: Where everything may be caught, and how often: each hands the error on or logs it.
BOUNDARIES = {
    "omlx.pipeline.conductor": 3,  # host and io lanes; who takes the work; pieces handed on
    "omlx.pipeline.third_party": 1,  # code that is not ours, while it is imported
    "omlx.engine.device": 4,  # the device loop
    "omlx.engine.executor": 1,  # between the batches of a round
    "omlx.engine.batch": 1,  # between the rows of a batch
    "omlx.models.pool": 1,  # the loader thread
    "omlx.store.writer": 1,  # the writer thread
    "omlx.server.answer": 1,  # a stream whose headers are out
    "omlx.server.boundary": 1,  # the HTTP handler
    "omlx.testing.drive": 2,  # the fake lanes, as the device loop
}

#: What checking, looking up, tracing and `--help` must not pay for.
HEAVY = ("mlx", "mlx_lm", "transformers", "litestar", "torch")
LIGHT = """
    omlx omlx.cli omlx.config.load omlx.prefix.match omlx.store.store omlx.text.tokenizer omlx.text.segments
    omlx.pipeline.pipelines omlx.pipeline.conductor omlx.stages omlx.testing omlx.testing.backend
    omlx.explain.explainer
""".split()  # noqa: SIM905 - a list of one a line would fill the page


def module(text: str, name: str = "omlx.store.sample") -> Module:
    """Return a module to check."""
    return Module(name, text)


def nested(*blocks: str) -> str:
    """Return a function with these blocks, each inside the one before."""
    lines = ["def f():", *(f"{' ' * (depth + 1)}{block}:" for depth, block in enumerate(blocks))]
    return "\n".join([*lines, " " * (len(blocks) + 1) + "pass"])


def test_a_room_imports_only_rooms_below():
    """Imports point down the rooms, apart from the named neighbours."""
    assert [] == imports.rooms(package())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("omlx.stages.fetch", "from omlx.kv.restore import restore"),
        ("omlx.stages.fetch", "def f():\n    from omlx.kv import restore  # 2 s"),
        ("omlx.prefix.match", "import omlx.store.store"),
        ("omlx.config.load", "from omlx.text import chat"),
        ("omlx.config.load", "from omlx import server"),
        ("omlx.testing.fake", "from omlx.runtime.runtime import Runtime"),
        ("omlx.errors", "from omlx.types import Tokens"),
        ("omlx", "from omlx.errors import OmlxError"),
        ("omlx.kv.full", "from omlx.models.load import load"),
        ("omlx.attic.box", ""),
    ],
)
def test_an_import_that_points_up_is_found(name, text):
    """An import of a higher or neighbouring room is found, wherever in the module it stands."""
    assert 1 == len(imports.rooms([module(text, name)]))


def test_an_import_that_points_down_is_allowed():
    """Lower rooms, the own room, the version and the named neighbours may be imported."""
    text = "import os\nfrom omlx import __version__\nimport omlx.store.store\nimport omlx.prefix.block"
    assert [] == imports.rooms(
        [module(text), module("from omlx.models.loaded import X", "omlx.engine.device")]
    )


def test_mlx_stays_in_its_rooms():
    """MLX is imported in the rooms made for it, and not in modules that promise to do without."""
    assert [] == imports.mlx(package())
    promised = [each.name for each in package() if "No MLX" in each.text and each.room == "models"]
    assert len(promised) >= 2


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("omlx.store.store", "import mlx.core as mx"),
        ("omlx.testing.fake", "def f():\n    from mlx import core"),
        ("omlx.cli.bench", "from mlx_lm.models.cache import KVCache"),
        ("omlx.models.resolve", '"""Resolve. No MLX."""\nimport mlx_lm'),
    ],
)
def test_mlx_elsewhere_is_found(name, text):
    """An import of MLX outside its rooms, or against a promise, is found."""
    assert 1 == len(imports.mlx([module(text, name)]))


def test_mlx_in_its_room_is_allowed():
    """The checker leaves MLX alone where it belongs, and names that only look like it."""
    assert [] == imports.mlx([module("import mlx.core", "omlx.kv.full"), module("import mlxtend")])


def test_no_two_modules_import_each_other():
    """There is no cycle, and no relative import that would hide one."""
    assert [] == imports.cycles(package())
    assert [] == imports.relative(package())


def test_a_cycle_is_found():
    """A cycle is found through several modules, whatever form the imports have."""
    ring = [
        module("from omlx import b", "omlx.a"),
        module("import omlx.c.d", "omlx.b"),
        module("from omlx.a import thing", "omlx.c.d"),
        module("import omlx.a", "omlx.e"),
    ]
    assert ["omlx.a -> omlx.b -> omlx.c.d -> omlx.a"] == imports.cycles(ring)
    assert [] == imports.cycles(ring[1:])
    assert 1 == len(imports.relative([module("from . import x")]))


def test_an_import_inside_a_function_says_what_it_saves():
    """An import waits for its first use only where that saves time, and the comment says how much."""
    assert [] == imports.inside_functions(package())


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("import x", 1),
        ("import x  # slow", 1),
        ("import x  # takes 2 s", 0),
        ("from x import y  # noqa: A1 - 0.2 s", 0),
        ("# costs 140 ms\n    import x", 0),
        ("y = 2  # 2 s\n    import x", 1),
    ],
)
def test_an_import_without_its_cost_is_found(line, found):
    """The cost stands on the line, or in the comment right above it."""
    assert found == len(imports.inside_functions([module(f"def f():\n    {line}\n")]))


def test_modules_and_functions_are_small():
    """Modules, functions and nesting stay within the limits."""
    assert [] == shape.sizes(package())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x = 1\n" * 400, 0),
        ("x = 1\n" * 401, 1),
        ("def f():\n" + "    x = 1\n" * 59, 0),
        ("def f():\n" + "    x = 1\n" * 60, 1),
        ("class A:\n    async def f(self):\n" + "        x = 1\n" * 60, 1),
        (nested(*["if x"] * 4), 0),
        (nested(*["with x"] * 5), 1),
        ("def f():\n    if a:\n        pass\n" + "    elif b:\n        pass\n" * 9, 0),
        (
            "def f():\n for a in b:\n  try: x\n  except:\n   match a:\n    case 1:\n     while b:\n      if b: x",
            1,
        ),
        (
            nested("for a in b", "def g()", "for c in d", "for e in f", "for h in i", "if x"),
            1,
        ),
    ],
)
def test_what_is_too_large_is_found(text, found):
    """Each limit is met exactly: the last allowed size passes, the next is found."""
    assert found == len(shape.sizes([module(text)]))


def test_names_say_what_is_inside():
    """No module is a drawer for anything."""
    assert [] == shape.names(package())
    named = [
        "omlx.store.utils",
        "omlx.misc",
        "omlx.kv.cache_manager",
        "omlx.text.common.chat",
        "omlx.kv.family",
    ]
    assert named[:-1] == shape.names([module("", name) for name in named])


def test_everything_public_is_documented():
    """Each public module, class and function says what it promises."""
    assert [] == shape.docstrings(package())


def test_a_missing_docstring_is_found():
    """Modules, classes, functions and methods are looked at; private ones and nested functions are not."""
    text = "class A:\n def f(self): ...\n def _g(self): ...\nasync def h():\n def i(): ...\ndef _j(): ..."
    assert ["m", "m:1 'A'", "m:2 'f'", "m:4 'h'"] == shape.docstrings([module(text, "m")])


def test_everything_is_caught_at_the_boundaries_only():
    """A broad except stands at a named boundary and nowhere else."""
    assert [] == shape.broad_excepts(package(), BOUNDARIES)


@pytest.mark.parametrize(
    ("handler", "found"),
    [
        ("except Exception: pass", 1),
        ("except: pass", 1),
        ("except (ValueError, BaseException) as e: raise X from e", 1),
        ("except BaseException:\n    clean()\n    raise", 0),
        ("except (ValueError, OSError): pass", 0),
    ],
)
def test_a_broad_except_is_found(handler, found):
    """Catching everything is found unless it is raised again; more than allowed is found too."""
    sample = module(f"try:\n    pass\n{handler}\n", "m")
    assert found == len(shape.broad_excepts([sample], {}))
    assert [] == shape.broad_excepts([sample], {"m": 1})


def test_the_tree_belongs_to_no_machine_and_no_registry():
    """No text of the project names a registry's host or an absolute path of some machine."""
    assert [] == words.foreign(REPOSITORY)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("index = https://py" + "pi.org/simple", 1),
        ("see hugging" + "face.co/models", 1),
        ("path = '/ho" + "me/ann/models'", 1),
        ("cd /ro" + "ot/x", 1),
        ("huggingface-hub>=1.0 in ~/.cache/omlx under $HOME, at https://example.org/work", 0),
    ],
)
def test_a_foreign_word_is_found(tmp_path, line, found):
    """Hosts and machine paths are found in code, TOML and Markdown; ordinary words are not."""
    (tmp_path / "omlx").mkdir()
    (tmp_path / "omlx" / "x.toml").write_text(f"a = 1\n# {line}\n")
    (tmp_path / "README.md").write_text(line)
    assert 2 * found == len(words.foreign(tmp_path))


def loaded_by(code: str) -> set[str]:
    """Return which heavy packages a fresh interpreter has loaded after some code."""
    script = f"{code}\nimport sys\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    return set(result.stdout.splitlines()[-1].split())


def test_checking_and_looking_up_load_nothing_heavy():
    """The rooms of config, identity, bytes, text, pipelines and fakes load neither MLX nor the server."""
    assert set() == loaded_by("import " + ", ".join(LIGHT))


def test_help_loads_nothing_heavy():
    """`omlx --help`, and the help of every verb, is there at once."""
    help_of_all = """
import contextlib, io
from omlx.cli import main
out = io.StringIO()
for words in (["--help"], ["serve", "--help"], ["check", "--help"]):
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(out):
        main(words)
assert "serve" in out.getvalue()
"""
    assert set() == loaded_by(help_of_all)


def test_a_heavy_import_is_found():
    """The check sees what a module loads, however deep."""
    assert "litestar" in loaded_by("import omlx.server.app")


def test_every_room_is_looked_at(tmp_path):
    """The checkers see all modules of a folder, packages by their own name."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "__init__.py").touch()
    (tmp_path / "a" / "b.py").touch()
    (tmp_path / "__init__.py").touch()
    assert ["omlx", "omlx.a", "omlx.a.b"] == [each.name for each in read_modules(tmp_path)]
    rooms = {each.room for each in package()}
    assert {room for room in imports.ROOM_LINES if (Path(REPOSITORY) / "omlx" / room).is_dir()} <= rooms

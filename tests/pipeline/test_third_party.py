"""Anyone can bring a stage: a module beside the TOML, an installed one, or an entry point."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omlx.errors import ConfigError
from omlx.pipeline.pipeline import Pipeline, load_pipeline
from omlx.stages import built_in_stages

SHOUT = '''
"""A stage of somebody else."""

from typing import ClassVar

from omlx.config.settings import PositiveInt
from omlx.pipeline.stage import Lane, Services, Stage
from omlx.pipeline.state import State


class Shout(Stage, frozen=True, tag="shout"):
    """Assign a field of its own."""

    requires: ClassVar[tuple[str, ...]] = ("tokens",)
    assigns: ClassVar[tuple[str, ...]] = ("volume",)

    times: PositiveInt = 1

    def run(self, state: State, services: Services) -> None:
        state.volume = self.times
'''

CHAIN = '[[stage]]\nuse = "tokenize"\n[[stage]]\nuse = "{use}"\ntimes = {times}\n[[stage]]\nuse = "prefill"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder for modules; what is imported from it is forgotten afterwards."""
    before, path = set(sys.modules), list(sys.path)
    yield tmp_path
    assert path == sys.path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def load(folder: Path, use: str, times: object = 3) -> Pipeline:
    """Read a pipeline that uses the stage, from a folder below the modules' one."""
    path = folder / "pipelines" / "chat.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(CHAIN.format(use=use, times=times))
    return load_pipeline(path, built_in_stages(), None, (folder,))


def problem(folder: Path, use: str, times: object = 3) -> str:
    """Return the one problem of such a pipeline."""
    with pytest.raises(ConfigError) as caught:
        load(folder, use, times)
    [line] = str(caught.value).splitlines()
    return line.replace(f"{folder}/pipelines/", "")


def test_a_module_beside_models_toml_is_found(folder):
    """`module:Class` is loaded from the folder of models.toml, which is not put on sys.path."""
    (folder / "shouting.py").write_text(SHOUT)
    stage = load(folder, "shouting:Shout").stages[1]
    assert ("shout", 3) == (stage.name(), stage.times)


def test_a_module_beside_the_pipeline_is_found(folder):
    """`module:Class` is loaded from the folder of the pipeline file, also inside a package."""
    package = folder / "pipelines" / "loud"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "stages.py").write_text(SHOUT)
    assert "shout" == load(folder, "loud.stages:Shout").stages[1].name()


def test_an_entry_point_is_found(folder, monkeypatch):
    """An installed distribution offers stages under the group `omlx.stages`."""
    (folder / "shout_dist.py").write_text(SHOUT)
    info = folder / "shout_dist-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shout-dist\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[omlx.stages]\nyell = shout_dist:Shout\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(folder))
        assert "shout" == load(folder, "yell").stages[1].name()


def test_its_keys_are_checked_like_those_of_any_stage(folder):
    """A third party's options are validated with line and allowed values."""
    (folder / "shouting.py").write_text(SHOUT)
    expected = "chat.toml:5: times: expected a whole number >= 1; leave it out for the default, 1"
    assert expected == problem(folder, "shouting:Shout", 0)


@pytest.mark.parametrize(
    ("code", "use", "reason"),
    [
        (None, "no_such_module:X", "ModuleNotFoundError: No module named 'no_such_module'"),
        (SHOUT, "m:Shot", "AttributeError: module 'm' has no attribute 'Shot'"),
        (SHOUT, "m:PositiveInt", "typing.Annotated"),
        ("x = 1\n\nraise OSError('no disk')", "m:X", "OSError: no disk (m.py:3)"),
        ("def f(:", "m:X", "SyntaxError"),
        (SHOUT.replace('("tokens",)', '"tokens"'), "m:Shout", "Shout.requires must be a tuple of names"),
        (
            SHOUT + '    lane: ClassVar[Lane] = "gpu"',
            "m:Shout",
            "Shout.lane must be 'host', 'io' or 'device', not 'gpu'",
        ),
        (SHOUT.replace("def run", "def walk"), "m:Shout", "Shout has no method 'run'"),
        (None, ":X", "write module:Class"),
        (None, "m:", "write module:Class"),
    ],
)
def test_a_stage_that_cannot_be_used_says_why(folder, code, use, reason):
    """Whatever is wrong with somebody else's module is a problem on its line, not a traceback."""
    if code is not None:
        (folder / "m.py").write_text(code)
    found = problem(folder, use)
    assert found.startswith(f"chat.toml:4: stage {use!r} cannot be loaded: ")
    assert reason in found


def test_a_module_that_failed_is_tried_afresh(folder):
    """A module that raised while it was loaded leaves nothing behind that a second try would find."""
    (folder / "m.py").write_text("raise OSError('later')")
    problem(folder, "m:Shout")
    (folder / "m.py").write_text(SHOUT)
    assert "shout" == load(folder, "m:Shout").stages[1].name()


def test_an_installed_module_is_not_shadowed(folder):
    """A file beside the TOML does not take the place of a module that Python finds itself."""
    (folder / "json.py").write_text(SHOUT)
    assert "module 'json' has no attribute 'Shout'" in problem(folder, "json:Shout")

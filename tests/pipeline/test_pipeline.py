"""A pipeline file is a chain that works, or every reason why it does not, before anything loads."""

from pathlib import Path

import pytest

from omlx.config.document import Document, parse_document
from omlx.config.paths import pipeline_names
from omlx.errors import ConfigError
from omlx.pipeline.pipeline import Pipeline, Tuning, load_pipeline
from omlx.stages import built_in_stages
from omlx.stages.prefill import PrefillStage
from omlx.stages.writeback import WritebackStage

REPOSITORY = Path(__file__).parents[2]
SHIPPED = REPOSITORY / "pipelines"

PLAIN = """\
[[stage]]
use = "tokenize"
[[stage]]
use = "prefill"
[[stage]]
use = "decode"
"""


def load(tmp_path: Path, text: str, tuning: Tuning | None = None) -> Pipeline:
    """Read a pipeline from text."""
    path = tmp_path / "chat.toml"
    path.write_text(text)
    return load_pipeline(path, built_in_stages(), tuning)


def problems(tmp_path: Path, text: str, tuning: Tuning | None = None) -> list[str]:
    """Return the lines of the error for a pipeline file, with the file's name alone."""
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, tuning)
    return str(caught.value).replace(f"{tmp_path}/", "").splitlines()


def chain(*names: str) -> str:
    """Return a pipeline file of stages without options; stage `n` stands on line `2n`."""
    return "".join(f'[[stage]]\nuse = "{name}"\n' for name in names)


@pytest.mark.parametrize("name", [path.stem for path in sorted(SHIPPED.glob("*.toml"))])
def test_the_pipelines_that_ship_have_no_problems(name):
    """Each shipped pipeline loads, says what it is for, and ends with an answer."""
    pipeline = load_pipeline(SHIPPED / f"{name}.toml", built_in_stages())
    assert name == pipeline.name
    assert pipeline.description
    assert "decode" in [stage.name() for stage in pipeline.stages]
    assert name in pipeline_names(REPOSITORY)


def test_stages_stand_in_the_order_of_the_file(tmp_path):
    """The chain has the file's stages, with the values that the file gives and defaults for the rest."""
    pipeline = load(tmp_path, PLAIN.replace('"prefill"', '"prefill"\nchunk_tokens = 64'))
    assert ["tokenize", "prefill", "decode"] == [stage.name() for stage in pipeline.stages]
    assert PrefillStage(chunk_tokens=64) == pipeline.stage(PrefillStage)
    assert pipeline.stage(WritebackStage) is None
    assert ("chat", "") == (pipeline.name, pipeline.description)


def test_every_problem_of_the_tables_is_reported_at_once(tmp_path):
    """Unknown stages and keys, bad values and stray tables are found in one run, each on its line."""
    text = """\
[pipelines]
x = 1
[pipeline]
descripton = "x"
[[stage]]
use = "tokenise"
[[stage]]
use = "prefill"
chunk_tokns = 5
chunk_tokens = 0
exact = "yes"
[[stage]]
used = "decode"
[[stage]]
use = "zzz"
"""
    names = ", ".join(built_in_stages().names())
    assert [
        "chat.toml:1: unknown key 'pipelines' in the file; did you mean 'pipeline'?",
        "chat.toml:4: unknown key 'descripton' in [pipeline]; did you mean 'description'?",
        "chat.toml:6: unknown stage 'tokenise'; did you mean 'tokenize'?",
        "chat.toml:9: unknown key 'chunk_tokns' in [[stage]] 2; did you mean 'chunk_tokens'?",
        "chat.toml:10: chunk_tokens: expected a whole number >= 1; leave it out for the default, 512",
        "chat.toml:11: exact: expected true or false, got text; write true",
        f'chat.toml:12: a [[stage]] table needs use = "NAME"; use one of: {names}',
        f"chat.toml:15: unknown stage 'zzz'; use one of: {names}",
    ] == problems(tmp_path, text)


@pytest.mark.parametrize("text", ["", "stage = 3", "stage = []", "[pipeline]", "[stage]\nuse = 'tokenize'"])
def test_a_pipeline_has_stages(tmp_path, text):
    """A file without `[[stage]]` tables is refused."""
    [problem] = problems(tmp_path, text)
    remedy = (
        "write [[stage]], in two"
        if text.startswith("[stage]")
        else "begin with the chain of the pipeline 'default'"
    )
    assert f"a pipeline needs at least one [[stage]] table; {remedy}" in problem


def unmet(line: int, stage: str, field: str, remedy: str) -> str:
    """Return the problem of a stage that misses a field."""
    what = f"stage {stage!r} requires {field!r}, which no earlier stage assigns"
    return f"chat.toml:{line}: {what}; {remedy} before it"


def twice(line: int, stage: str, fields: str) -> str:
    """Return the problem of a stage that stands in the chain twice."""
    what = f"stage {stage!r} assigns {fields}, as stage {stage!r} in line 2 did before"
    return f"chat.toml:{line}: {what}; leave one of them out"


def late(line: int, stage: str, other: str) -> str:
    """Return the problem of a stage that comes before one that it follows."""
    return f"chat.toml:{line}: stage {stage!r} must come after {other!r}; move stage {other!r} before it"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("tokenize segment fetch prefill decode", [unmet(6, "fetch", "match", "put a 'lookup' stage")]),
        ("tokenize decode prefill", [unmet(4, "decode", "sequence", "move stage 'prefill'")]),
        (
            "tokenize tokenize prefill",
            [twice(4, "tokenize", "'text', 'starts' and 'tokens'")],
        ),
        ("tokenize prefill writeback decode", [late(6, "writeback", "decode")]),
        ("tokenize lookup coalesce fetch prefill decode", [late(4, "lookup", "coalesce")]),
        (
            "prefill fetch",
            [
                unmet(2, "prefill", "tokens", "put a 'tokenize' stage"),
                unmet(4, "fetch", "match", "put a 'lookup' stage"),
            ],
        ),
    ],
)
def test_an_order_that_cannot_work_says_what_to_do(tmp_path, names, expected):
    """An unmet requirement, a second assignment and a stage out of place are named with the remedy.

    The words in full: `chat.toml:6: stage 'fetch' requires 'match', which no earlier stage assigns; put a
    'lookup' stage before it`.
    """
    assert expected == problems(tmp_path, chain(*names.split()))


@pytest.mark.parametrize(
    "left_out", ["normalize", "segment", "coalesce", "lookup fetch", "writeback", "lookup fetch writeback"]
)
def test_a_pipeline_with_stages_left_out_works(tmp_path, left_out):
    """Optional stages may be left out, in every sensible way."""
    names = [name for name in built_in_stages().names() if name not in left_out.split()]
    assert names == [stage.name() for stage in load(tmp_path, chain(*names)).stages]


def test_a_model_tunes_single_stages(tmp_path):
    """A model's own keys take the place of the pipeline's, and leave its other keys alone."""
    text = PLAIN.replace('"prefill"', '"prefill"\nchunk_tokens = 64\nexact = true')
    tuned = load(tmp_path, text, Tuning({"prefill": {"chunk_tokens": 128}}))
    assert PrefillStage(chunk_tokens=128, exact=True) == tuned.stage(PrefillStage)


def test_bad_tuning_is_blamed_on_the_models_file(tmp_path):
    """What a model's tuning has wrong is reported at its line in models.toml, not in the pipeline."""
    models = parse_document(
        Path("models.toml"),
        """\
[models.a.stages.prefil]
exact = true
[models.a.stages.prefill]
use = "decode"
chunk_tokns = 1
chunk_tokens = -1
""",
    )
    tables = models.data["models"]["a"]["stages"]
    options = ", ".join(PrefillStage.__struct_fields__)
    assert [
        "models.toml:1: pipeline 'chat' has no stage 'prefil' to tune; did you mean 'prefill'?",
        f"models.toml:4: unknown key 'use' in [models.a.stages.prefill]; use one of: {options}",
        "models.toml:5: unknown key 'chunk_tokns' in [models.a.stages.prefill]; did you mean 'chunk_tokens'?",
        "models.toml:6: chunk_tokens: expected a whole number >= 1; leave it out for the default, 512",
    ] == problems(tmp_path, PLAIN, Tuning(tables, models, ("models", "a", "stages")))


def test_tuning_without_lines_still_names_its_file(tmp_path):
    """Settings that were not read from a file get problems without a line rather than a wrong one."""
    tuning = Tuning({"prefill": {"exact": 3}}, Document(Path("models.toml"), {}), ("models", "a", "stages"))
    assert [
        "models.toml: exact: expected true or false, got a whole number; leave it out for the default, false"
    ] == problems(tmp_path, PLAIN, tuning)

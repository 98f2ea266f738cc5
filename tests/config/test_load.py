"""models.toml is read whole or refused with every problem, each with its line and what to do instead."""

from pathlib import Path

import pytest

from omlx.config.load import load_config, load_settings
from omlx.config.settings import Settings
from omlx.errors import ConfigError, UsageError


def problems(tmp_path: Path, text: str, *overrides: str) -> list[str]:
    """Return the lines of the error for a models.toml, with the file's name alone."""
    path = tmp_path / "models.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings(path, overrides)
    return str(caught.value).replace(f"{tmp_path}/", "").splitlines()


def settings(tmp_path: Path, text: str, *overrides: str) -> Settings:
    """Return the settings of a models.toml."""
    path = tmp_path / "models.toml"
    path.write_text(text)
    return load_settings(path, overrides)


def test_every_problem_is_reported_at_once(tmp_path):
    """One run shows all problems of a file: where, what, and what to do instead, in the order of the file."""
    text = """\
[default]
pipeline = "x"

[server]
port = 99999
hots = "0.0.0.0"
keep_alive = "soon"

[cache]
hot = "12XB"
cold = 0

[models.coder]
path = "owner/coder"
aliases = ["small", 3]
pipelin = "hybrid"
sampling = { temprature = 0.7, top_p = 2, top_k = "many" }

[models.other]
aliases = "small"

[models.lost]

[models.lost.sampling]
min_p = true
"""
    expected = """\
models.toml:1: unknown key 'default' in the file; did you mean 'defaults'?
models.toml:5: port: expected a whole number <= 65535
models.toml:6: unknown key 'hots' in [server]; did you mean 'host'?
models.toml:7: keep_alive: expected a duration above zero such as "500ms", "30s" or "5m", got 'soon'
models.toml:10: hot: expected a size above zero such as "512MiB" or "4GiB", got '12XB'
models.toml:11: cold: expected a size above zero such as "512MiB" or "4GiB", got 0
models.toml:15: aliases: expected text, got a whole number (at [1])
models.toml:16: unknown key 'pipelin' in [models.coder]; did you mean 'pipeline'?
models.toml:17: unknown key 'temprature' in [models.coder.sampling]; did you mean 'temperature'?
models.toml:17: top_p: expected a number <= 1.0
models.toml:17: top_k: expected a whole number, got text
models.toml:19: [models.other] needs the key 'path'
models.toml:20: aliases: expected a table or an array, got text
models.toml:22: [models.lost] needs the key 'path'
models.toml:25: min_p: expected a number, got true or false"""
    assert expected.splitlines() == problems(tmp_path, text)


@pytest.mark.parametrize("key", ["hot", "cold"])
@pytest.mark.parametrize("value", ["0", "-1", '"12XB"', '""', '"0GiB"', "nan", "true"])
def test_a_bad_size_names_the_key_and_the_allowed_form(tmp_path, key, value):
    """A size that is zero, negative or no size is refused, never replaced by a default."""
    [problem] = problems(tmp_path, f"[cache]\n{key} = {value}\n")
    assert problem.startswith(
        f'models.toml:2: {key}: expected a size above zero such as "512MiB" or "4GiB", got '
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("models = 3", "models.toml:1: models must be tables; write [models.NAME]"),
        ("cache = 3", "models.toml:1: [cache] must be a table"),
        ("[models]\nlost = 3", "models.toml:2: [models.lost] must be a table"),
        ("a = ", "models.toml:1: not valid TOML: Invalid value"),
        ("[x]\na = 1\na = 2\n", "models.toml:3: not valid TOML: Cannot overwrite a value"),
        ('a = """\nnever closed\n', "models.toml:2: not valid TOML: Unterminated string"),
        ("[models.a]\npath = ''", "models.toml:2: model folder '' does not exist; give an existing"),
    ],
)
def test_a_file_of_another_shape_says_so(tmp_path, text, expected):
    """What is no TOML, or no table where one belongs, is named with its line."""
    [problem] = problems(tmp_path, text)
    assert problem.startswith(expected)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    """A folder in place of a file, and bytes that are no text, are configuration errors and no tracebacks."""
    with pytest.raises(ConfigError, match=r": cannot be read: Is a directory"):
        load_settings(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'a = "\xe9"')
    with pytest.raises(ConfigError, match=r"latin\.toml: cannot be read: .*utf-8"):
        load_settings(tmp_path / "latin.toml")


def test_a_byte_order_mark_is_no_problem(tmp_path):
    """A file saved with a byte order mark is read like any other."""
    (tmp_path / "models.toml").write_bytes(b'\xef\xbb\xbf[cache]\nhot = "1GiB"\n')
    assert 1024**3 == load_settings(tmp_path / "models.toml").cache.hot


def test_a_name_belongs_to_one_model(tmp_path):
    """An alias that is another model's name or alias is refused, also of one that has problems."""
    text = """\
[models.a]
path = "o/a"
aliases = ["x", "a", "b"]
[models.b]
path = "o/b"
aliases = ["x"]
[models.broken]
[models.c]
path = "o/c"
aliases = ["broken"]
"""
    assert [
        "models.toml:3: alias 'b' already belongs to model 'b'; choose another alias",
        "models.toml:6: alias 'x' already belongs to model 'a'; choose another alias",
        "models.toml:7: [models.broken] needs the key 'path'",
        "models.toml:10: alias 'broken' already belongs to model 'broken'; choose another alias",
    ] == problems(tmp_path, text)


def test_the_default_model_must_exist(tmp_path):
    """`defaults.model` is the name or alias of a model; a slip gets the nearest name."""
    models = '[models.coder]\npath = "o/c"\naliases = ["small"]\n'
    assert "small" == settings(tmp_path, f'{models}[defaults]\nmodel = "small"\n').defaults.model
    assert ["models.toml:5: there is no model 'codr'; did you mean 'coder'?"] == problems(
        tmp_path, f'{models}[defaults]\nmodel = "codr"\n'
    )


def test_a_folder_that_does_not_exist_is_found_before_anything_loads(tmp_path):
    """A path that can only be a folder must be one; a name may still be looked up on the hub."""
    text = f"""\
[models.here]
path = "{tmp_path}"
[models.gone]
path = "{tmp_path}/gone"
[models.home]
path = "~/no/such/folder"
[models.hub]
path = "owner/name"
[models.catalog]
path = "smollm2-135m-instruct"
adapter = "no/such/adapter"
"""
    hint = "does not exist; give an existing folder, or a hub name such as owner/name"
    assert [
        f"models.toml:4: model folder 'gone' {hint}",
        f"models.toml:6: model folder '~/no/such/folder' {hint}",
        "models.toml:11: adapter folder 'no/such/adapter' does not exist; give an existing folder",
    ] == problems(tmp_path, text)


def test_without_a_file_there_are_defaults():
    """No file is a file that says nothing; overrides still count."""
    assert Settings() == load_settings(None)
    assert 9000 == load_settings(None, ("server.port=9000",)).server.port


def test_a_config_knows_its_folder_and_lines(tmp_path):
    """What is read keeps where it came from, for checks that come later."""
    path = tmp_path / "models.toml"
    path.write_text('[models.a]\npath = "o/a"\npipeline = "x"\n')
    config = load_config(path)
    assert tmp_path == config.base
    assert 3 == config.document.line(("models", "a", "pipeline"))


def test_an_override_wins_over_the_file(tmp_path):
    """`--set` takes TOML values and plain words, makes tables on the way, and the later of two counts."""
    read = settings(
        tmp_path,
        '[cache]\nhot = "1GiB"\n[models."qwen3.5"]\npath = "o/q"\n',
        "cache.hot=2GiB",
        "cache.hot=3GiB",
        'models."qwen3.5".stages.prefill.chunk_tokens=64',
        'models."qwen3.5".aliases=["x", "y"]',
        "server.api_key='123'",
        "models.new.path=owner/new=er",
    )
    assert 3 * 1024**3 == read.cache.hot
    assert {"prefill": {"chunk_tokens": 64}} == read.models["qwen3.5"].stages
    assert ("x", "y") == read.models["qwen3.5"].aliases
    assert "123" == read.server.api_key
    assert "owner/new=er" == read.models["new"].path


def test_a_problem_of_an_override_names_the_override(tmp_path):
    """A bad value from the command line is not blamed on a line of the file."""
    text = '[cache]\nhot = "1GiB"\n'
    assert [
        """--set cache.hot=12XB: hot: expected a size above zero such as "512MiB" or "4GiB", got '12XB'""",
        "--set cache.hto=1: unknown key 'hto' in [cache]; did you mean 'hot'?",
    ] == problems(tmp_path, text, "cache.hot=12XB", "cache.hto=1")


@pytest.mark.parametrize("override", ["", "cache.hot", "=3", "cache..hot=1", "a b=1", "[a]=1"])
def test_what_is_no_override_is_wrong_usage(tmp_path, override):
    """An override that is not path=value is refused, with an example."""
    with pytest.raises(UsageError, match=r"is not path=value; for example --set cache\.hot=2GiB"):
        settings(tmp_path, "", override)


def test_an_override_cannot_go_through_a_value(tmp_path):
    """A path that treats a value as a table is wrong usage and says which part is the value."""
    with pytest.raises(UsageError, match="'hot' is a value, it has no key 'x'"):
        settings(tmp_path, '[cache]\nhot = "1GiB"\n', "cache.hot.x=1")

"""Completeness: every cache class that mlx-lm has is met by a family or refused with a reason."""

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from functools import cache
from types import ModuleType

import pytest

from omlx.config.settings import ModelSettings
from tests.kv.parity import tiny
from tests.tiny_models import CONFIGS, make_model, make_module, settings_of

# isort: split
import mlx.core as mx
import mlx_lm.models
from mlx.utils import tree_flatten
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    KVCache,
    RotatingKVCache,
    _BaseCache,
    make_prompt_cache,
)

from omlx.kv.families import is_met, walk
from omlx.kv.family import UNSUPPORTED, UnsupportedCacheError
from omlx.kv.layout import probe_layout
from omlx.models.load import load

#: Modules that cannot be imported without a package that omlx does not bring, and what they would make.
NOT_IMPORTABLE = {"olmo": "needs the package ai2-olmo; has no make_cache, so its layers use KVCache"}


@cache
def modules() -> dict[str, ModuleType]:
    """Return every module of mlx_lm.models by name, without those that cannot be imported."""
    found = {}
    for info in pkgutil.iter_modules(mlx_lm.models.__path__):
        try:
            found[info.name] = importlib.import_module(f"mlx_lm.models.{info.name}")
        except (ImportError, SystemExit):  # one module exits when its tokenizer package is missing
            assert info.name in NOT_IMPORTABLE
    return found


def subclasses(kind: type) -> Iterator[type]:
    """Yield all classes below a class."""
    for child in kind.__subclasses__():
        yield child
        yield from subclasses(child)


def full_name(kind: type) -> str:
    """Return the name under which a class is listed."""
    return f"{kind.__module__}.{kind.__qualname__}"


def is_known(kind: type) -> bool:
    """Return whether a class is met, refused, or a list of such."""
    return kind is CacheList or is_met(kind) or full_name(kind) in UNSUPPORTED


def made_by(module: ModuleType) -> Iterator[tuple[str, set[type], bool]]:
    """Yield place, classes made, and whether another is asked for them, of each `make_cache` in a module."""
    tree = ast.parse(inspect.getsource(module))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "make_cache":
            calls = [call.func for call in ast.walk(node) if isinstance(call, ast.Call)]
            named = [getattr(module, func.id, None) for func in calls if isinstance(func, ast.Name)]
            kinds = {kind for kind in named if isinstance(kind, type)}
            asks = any(isinstance(func, ast.Attribute) and func.attr == "make_cache" for func in calls)
            yield f"{module.__name__}:{node.lineno}", kinds, asks


def test_every_cache_class_is_met_or_refused():
    """A new class in mlx-lm fails this test until a family meets it or the table says why none does."""
    assert len(modules()) > 100
    kinds = {kind for kind in subclasses(_BaseCache) if kind.__module__.startswith("mlx_lm.")}
    assert kinds >= {KVCache, RotatingKVCache, ArraysCache}
    assert [] == sorted(full_name(kind) for kind in kinds if not is_known(kind))


def test_every_make_cache_makes_known_classes():
    """Whatever a model puts into its list of caches, derived from the base class or not, is known."""
    found = [made for module in modules().values() for made in made_by(module)]
    assert len(found) > 50
    unknown = {place: {full_name(k) for k in kinds if not is_known(k)} for place, kinds, _ in found}
    assert {} == {place: kinds for place, kinds in unknown.items() if kinds}
    assert [] == [place for place, kinds, asks in found if not kinds and not asks]


def test_no_model_keeps_a_head_of_its_window():
    """Why `keep > 0` may be refused: no model asks for it, only `make_prompt_cache(max_kv_size=...)`, unused here."""
    keeps = [
        (module.__name__, keyword.value.value)
        for module in modules().values()
        for call in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "RotatingKVCache"
        for keyword in call.keywords
        if keyword.arg == "keep"
    ]
    assert len(keeps) >= 5
    assert [("mlx_lm.models.cache", 4)] == [made for made in keeps if made[1] != 0]


def test_the_table_of_unsupported_classes_has_no_stale_line():
    """Each line names a class that exists and that no family meets."""
    for name in UNSUPPORTED:
        module, _, kind = name.rpartition(".")
        assert not is_met(getattr(importlib.import_module(module), kind))


def test_a_refused_class_names_itself_and_the_reason():
    """The error that makes a model run uncached tells which class, and why."""
    from mlx_lm.models.deepseek_v41 import LayerCache

    with pytest.raises(UnsupportedCacheError, match=r"deepseek_v41\.LayerCache \(it merges"):
        probe_layout(None, [LayerCache(8)])
    with pytest.raises(UnsupportedCacheError, match=r"RotatingKVCache \(keep=4: "):
        probe_layout(None, [RotatingKVCache(8, keep=4)])


def test_a_subclass_is_not_taken_for_its_parent():
    """A model's own subclass of a known cache may mean something else: it is refused."""

    class Surprise(KVCache):
        pass

    with pytest.raises(UnsupportedCacheError, match="Surprise"):
        probe_layout(None, [CacheList(Surprise())])


def test_members_of_a_cache_list_have_paths():
    """Each member is addressed by the index of its layer and its own."""
    caches = [KVCache(), CacheList(ArraysCache(2), KVCache())]
    assert [(0,), (1, 0), (1, 1)] == [path for path, _ in walk(caches)]


@pytest.mark.parametrize(
    ("family", "groups"),
    [
        ("llama", [("kv", None, 3)]),
        ("gemma3", [("window", 48, 4), ("kv", None, 2)]),
        ("llama4", [("window", 48, 3), ("kv", None, 1)]),
        ("mamba2", [("state", None, 3)]),
        ("qwen3_next", [("state", None, 2), ("kv", None, 2)]),
        ("deepseek_v32", [("kv", None, 2), ("kv", None, 2)]),
        ("longcat_flash", [("kv", None, 4)]),
        ("baichuan_m1", [("state", None, 3), ("kv", None, 2), ("window", 48, 1)]),
    ],
)
def test_layers_of_one_kind_and_shape_are_one_group(family, groups):
    """A record holds few arrays, however many layers the model has."""
    layout = tiny(family).layout
    assert groups == [(group.kind, group.window, len(group.layers)) for group in layout.groups]
    names = [spec.name for kind in layout.kinds() for spec in layout.tensors(kind)]
    assert len(names) == len(set(names))


def test_zeros_that_nothing_reads_are_not_stored():
    """DeepSeek's indexer keeps zeros beside its keys: its group has keys alone, latent attention has all it reads."""
    layout = tiny("deepseek_v32").layout
    assert [["0.keys", "0.values"], ["1.keys"]] == [
        [s.name for s in group.tensors] for group in layout.groups
    ]


@pytest.mark.parametrize("bias", [False, True])
def test_zeros_that_are_read_are_stored(bias):
    """Values that happen to be zero, as those of a padding token may be, are values: nothing of them is left out."""
    module = make_module(settings_of("llama", attention_bias=bias))
    zeros = [("model.embed_tokens.weight", module.model.embed_tokens.weight * (mx.arange(512) > 7)[:, None])]
    zeros += [
        (name, weight * 0)
        for name, weight in tree_flatten(module.parameters())
        if name.endswith(("v_proj.bias", "o_proj.bias"))
    ]
    module.load_weights(zeros, strict=False)
    caches = make_prompt_cache(module)
    module(mx.zeros((1, 4), mx.int32), cache=caches)
    assert (bias, False) == (mx.any(caches[0].keys).item(), mx.any(caches[0].values).item())
    assert tiny("llama").layout == probe_layout(module, make_prompt_cache(module))


@pytest.mark.parametrize("family", CONFIGS)
def test_a_folder_of_each_family_loads_with_its_layout(tmp_path, family):
    """A model that comes from a folder has the layout of the one made here, and is not run uncached."""
    folder = make_model(tmp_path / family, family)
    loaded = load(family, ModelSettings(path=str(folder)), folder)
    assert (tiny(family).layout, None) == (loaded.layout, loaded.model.uncached_reason)

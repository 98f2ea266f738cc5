import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere MLX does not need another BLAS")

REPORT = """
import dataclasses, json
from omlx.blas import ensure_blas
blas = ensure_blas()
import mlx.core as mx
import numpy as np
rng = np.random.default_rng(1)
left, right = rng.standard_normal((2, 150, 150), dtype=np.float32)
product = np.array(mx.matmul(mx.array(left), mx.array(right), stream=mx.cpu))
print(json.dumps({
    **dataclasses.asdict(blas), "path": blas.path and str(blas.path),
    "equal": bool(np.allclose(product, left @ right, atol=1e-3)),
    "same": ensure_blas() is blas,
    "mapped": [line.split()[-1] for line in open("/proc/self/maps") if "openblas" in line and ".so" in line],
}))
"""


def report(script: str = REPORT, **settings: str) -> dict:
    """Run the script in a fresh Python with these settings and return what it prints."""
    env = {
        key: value for key, value in os.environ.items() if not key.startswith(("OMLX_", "OPENBLAS_", "OMP_"))
    }
    env |= {"PYTHONPATH": os.pathsep.join(sys.path), **settings}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@on_linux
def test_the_wheel_is_used_and_computes_right(tmp_path: Path) -> None:
    """MLX computes on the wheel's OpenBLAS, under plain names, and its product equals NumPy's."""
    found = report(XDG_CACHE_HOME=str(tmp_path))
    assert found["name"] == "OpenBLAS"
    assert found["version"]
    assert found["equal"]
    assert found["same"]
    assert found["path"] in found["mapped"]
    assert Path(found["path"]).is_relative_to(tmp_path / "omlx" / "blas")
    assert found["threads"] == len(os.sched_getaffinity(0))


@on_linux
def test_mlx_is_bound_to_it(tmp_path: Path) -> None:
    """The dynamic linker binds MLX's matrix product to the library that was loaded, not to its own."""
    report(LD_DEBUG="bindings", LD_DEBUG_OUTPUT=str(tmp_path / "bindings"))
    lines = [line for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    bound = [line for line in lines if "libmlx.so" in line and "`cblas_sgemm'" in line]
    assert bound
    assert all("/omlx/blas/libopenblas-" in line for line in bound)


@on_linux
def test_the_copy_is_made_once_and_whole(tmp_path: Path) -> None:
    """Several processes that start at once end up with one copy, and later ones leave it alone."""
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    script = "from omlx.blas import ensure_blas; assert ensure_blas().path, ensure_blas().why"
    running = [subprocess.Popen([sys.executable, "-c", script], env=env) for _ in range(4)]
    assert [process.wait() for process in running] == [0] * 4
    (copy,) = (tmp_path / "omlx" / "blas").iterdir()
    before = copy.stat().st_mtime_ns
    report(XDG_CACHE_HOME=str(tmp_path))
    assert before == copy.stat().st_mtime_ns


@on_linux
def test_none_switches_it_off() -> None:
    """OMLX_BLAS=none leaves MLX its own BLAS, and the product is as right as ever."""
    found = report(OMLX_BLAS="none")
    assert (found["name"], found["path"], found["threads"]) == ("bundled", None, None)
    assert "OMLX_BLAS=none" in found["why"]
    assert found["equal"]


@on_linux
@pytest.mark.parametrize("wish", ["/nowhere/libfast.so", "libm.so.6"])
def test_an_unusable_wish_falls_through(wish: str) -> None:
    """A library that cannot be loaded, or is no BLAS, is passed over, and the reason is kept."""
    found = report(OMLX_BLAS=wish)
    assert found["name"] == "OpenBLAS"
    assert f"not OMLX_BLAS={wish}: " in found["why"]


@on_linux
def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path: Path) -> None:
    """Where no copy can be made, the next candidate is tried, the reason is kept, and MLX works."""
    (tmp_path / "omlx").write_text("a file where a folder should be")
    found = report(XDG_CACHE_HOME=str(tmp_path))
    assert "scipy-openblas32: " in found["why"]
    assert found["equal"]


@on_linux
def test_threads_can_be_set() -> None:
    """OPENBLAS_NUM_THREADS decides the number of threads."""
    assert report(OPENBLAS_NUM_THREADS="1")["threads"] == 1


@on_linux
def test_too_late_is_told() -> None:
    """Once MLX has been imported its BLAS stays, and the reason says what to import first."""
    found = report("import mlx.core\n" + REPORT)
    assert found["name"] == "bundled"
    assert "import omlx.models first" in found["why"]


def test_speed_is_measured() -> None:
    """`gflops` measures a speed above zero."""
    assert report("from omlx.blas import gflops\nprint(gflops(64))") > 0

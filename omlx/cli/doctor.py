"""doctor: say what this machine offers: backend, BLAS, memory, disk, versions."""

import argparse
import json
import platform
import shutil
from importlib.metadata import version
from pathlib import Path

from omlx.config.settings import CacheSettings
from omlx.units import format_size


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Print what is found."""
    from omlx.blas import device_name, ensure_blas, gflops  # noqa: PLC0415 - the BLAS must be loaded before MLX: 0.3 s

    blas = ensure_blas()
    facts = {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        **{name: version(name) for name in ("omlx", "mlx", "mlx-lm")},
        "device": device_name(),
        "blas": " ".join(
            part for part in (blas.name, blas.version, f"({blas.path})" if blas.path else "") if part
        ),
        "blas reason": blas.why,
        "blas threads": blas.threads,
        "float32 matmul": f"{gflops():.0f} GFLOP/s",
        "cache directory": str(_cache_directory()),
        "free disk": format_size(shutil.disk_usage(_existing(_cache_directory())).free),
    }
    if options.json:
        print(json.dumps(facts, indent=2))
    else:
        width = max(len(name) for name in facts)
        for name, value in facts.items():
            print(f"{name:<{width}}  {value}")
    return 0


def _cache_directory() -> Path:
    return Path(CacheSettings().directory).expanduser()


def _existing(path: Path) -> Path:
    """Return the nearest folder above `path` that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists())

"""KV: mlx-lm's caches to records and back. Each family of cache classes is met in one file.

    layers' caches ──layout──▶ Layout (plain values)
         │   ▲
    capture  restore
         ▼   │
       records of a block

What a restore has filled goes on exactly as what computed it; each family's file says why.
"""

from omlx.blas import ensure_blas

ensure_blas()  # before anything here imports mlx.core

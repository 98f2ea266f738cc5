"""Models: the BLAS under MLX, weights made ready for mlx-lm, loading and holding.

Importing this package loads a fast BLAS (`blas.ensure_blas`), so it comes before any `import mlx.core`.
"""

from omlx.blas import ensure_blas

ensure_blas()

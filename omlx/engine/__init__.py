"""Engine: one thread owns MLX and runs the work of all requests, one bounded piece at a time."""

from omlx.blas import ensure_blas

ensure_blas()  # before anything here imports mlx.core

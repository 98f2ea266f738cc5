"""omlx: a declarative pipeline that serves local models and keeps their KV cache as an asset.

Rooms, lowest first; a room imports only rooms on lower lines (a test holds this):

    9  cli
    8  server
    7  runtime, testing
    6  engine, models, explain engine and models may import MLX
    5  stages, kv              kv may import MLX
    4  pipeline, codecs        codecs may import MLX
    3  text
    2  prefix, store
    1  config
    0  errors, types, units, registry, telemetry, blas
"""

from importlib.metadata import version

__version__ = version("omlx")

"""What `models.toml` can say: each key, its type, its default and its unit."""

from typing import Annotated, Any

import msgspec

from omlx.units import ByteSize, Duration

PositiveInt = Annotated[int, msgspec.Meta(gt=0)]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The policy of every table: frozen, unknown keys refused."""


class SamplingDefaults(Table, frozen=True):
    """Sampling values used when a request gives none. A value left out is the model's own, else greedy."""

    temperature: Annotated[float, msgspec.Meta(ge=0)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, msgspec.Meta(ge=0)] | None = None
    min_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0)] | None = None


class ServerSettings(Table, frozen=True):
    """`[server]`: the address, the key and the limits of the HTTP server.

    `keep_alive` is the longest silence on a stream before a comment line is sent.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 8321
    api_key: str | None = None
    keep_alive: Duration = Duration(5.0)
    max_running: PositiveInt = 8
    max_queued: PositiveInt = 64
    max_body: ByteSize = ByteSize(64 * 1024**2)


class CacheSettings(Table, frozen=True):
    """`[cache]`: where blocks live and how many bytes each tier may hold.

    `disk_share` is the largest share of the volume's free space that the cold tier takes, whatever `cold`
    says.
    """

    directory: str = "~/.cache/omlx/blocks"
    hot: ByteSize = ByteSize(4 * 1024**3)
    cold: ByteSize = ByteSize(40 * 1024**3)
    disk_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.5


class Defaults(Table, frozen=True):
    """`[defaults]`: what a model uses when its own table does not say.

    `model` is the name or alias that answers requests which name none.
    """

    pipeline: str = "default"
    model: str | None = None


class ModelSettings(Table, frozen=True):
    """`[models.NAME]`: the weights, the pipeline and the tuning of one model.

    `path` is a folder or a hub name. `adapter` is the folder of a LoRA adapter laid over it. `stages` tunes
    single stages of the pipeline: `stages.prefill.chunk_tokens`. `max_tokens` bounds an answer when the request
    does not; left out, the window does. `window_tokens` lowers the model's own window.
    """

    path: str
    adapter: str | None = None
    pipeline: str | None = None
    aliases: tuple[str, ...] = ()
    sampling: SamplingDefaults = SamplingDefaults()
    template_options: dict[str, Any] = {}
    stages: dict[str, dict[str, Any]] = {}
    max_tokens: PositiveInt | None = None
    window_tokens: PositiveInt | None = None
    trust_remote_code: bool = False


class Settings(Table, frozen=True):
    """A whole `models.toml`."""

    defaults: Defaults = Defaults()
    server: ServerSettings = ServerSettings()
    cache: CacheSettings = CacheSettings()
    models: dict[str, ModelSettings] = {}

"""What `models.toml` can say: each key, its type, its default and its unit."""

from typing import Annotated, Any

import msgspec

from omlx.units import ByteSize, Duration

PositiveInt = Annotated[int, msgspec.Meta(gt=0)]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The policy of every table: frozen, unknown keys refused."""


class SamplingDefaults(Table, frozen=True):
    """Sampling values used when a request gives none. A value left out is the model's own, else greedy.

    Options:
        temperature: how far the choice may stray from the likeliest token; 0 is greedy.
        top_p: choose among the likeliest tokens that together have this probability.
        top_k: choose among this many tokens; 0 is all.
        min_p: choose among tokens at least this likely, as a share of the likeliest.
        repetition_penalty: above 1, tokens that were there already become less likely.
    """

    temperature: Annotated[float, msgspec.Meta(ge=0)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, msgspec.Meta(ge=0)] | None = None
    min_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0)] | None = None


class ServerSettings(Table, frozen=True):
    """`[server]`: the address, the key and the limits of the HTTP server.

    Options:
        host: the address to listen on; 0.0.0.0 is every one.
        port: the port to listen on; 0 picks a free one.
        api_key: clients must send it; without one, anybody who reaches the address may ask.
        allowed_hosts: names by which clients may address the server, besides those of this machine; "*" allows all.
        allowed_origins: web pages that may ask, as in "http://localhost:3000"; "*" allows all.
        keep_alive: the longest silence on a stream before a comment line is sent.
        max_running: requests that run at once.
        max_queued: requests that may wait; more are told to come back.
        max_body: the longest body of a request.
        memory: the most that weights, live caches, the hot tier and pending writes may take together; left out, three
            quarters of this machine's RAM.
        request_timeout: a request that is not answered after this time is given up, wherever it is; left out, none is.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 8321
    api_key: str | None = None
    allowed_hosts: tuple[str, ...] = ("host.docker.internal",)
    allowed_origins: tuple[str, ...] = ()
    keep_alive: Duration = Duration(5.0)
    max_running: PositiveInt = 8
    max_queued: PositiveInt = 64
    max_body: ByteSize = ByteSize(64 * 1024**2)
    memory: ByteSize | None = None
    request_timeout: Duration | None = None


class CacheSettings(Table, frozen=True):
    """`[cache]`: where blocks live and how many bytes each tier may hold.

    Options:
        directory: the folder of the cold tier.
        hot: the most RAM that blocks may take.
        cold: the most disk that blocks may take.
        disk_share: the largest share of the volume's free space that the cold tier takes, whatever `cold` says.
        max_age: blocks on disk that were not used for longer are the first to go, and are deleted when the server
            cleans up; left out, age alone deletes nothing.
    """

    directory: str = "~/.cache/omlx/blocks"
    hot: ByteSize = ByteSize(4 * 1024**3)
    cold: ByteSize = ByteSize(40 * 1024**3)
    disk_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.5
    max_age: Duration | None = None


class Defaults(Table, frozen=True):
    """`[defaults]`: what a model uses when its own table does not say.

    Options:
        pipeline: a name, or the path of a TOML file.
        model: the name or alias that answers requests which name none.
    """

    pipeline: str = "default"
    model: str | None = None


class AliasSettings(Table, frozen=True):
    """`[models.NAME.aliases.ALIAS]`: what a request under this name gets where it says nothing itself.

    Options:
        sampling: values used instead of the model's.
        template_options: options given to the chat template, over the model's.
    """

    sampling: SamplingDefaults = SamplingDefaults()
    template_options: dict[str, Any] = {}


class ModelSettings(Table, frozen=True):
    """`[models.NAME]`: the weights, the pipeline and the tuning of one model.

    Options:
        path: a folder, or a name on the hub.
        adapter: the folder of a LoRA adapter laid over it.
        pipeline: a name, or the path of a TOML file.
        aliases: more names that clients may use: a list, or a table for each with sampling and template options.
        sampling: values used when a request gives none.
        template_options: options given to the chat template when a request gives none.
        stages: tunes single stages of the pipeline, as in `stages.prefill.chunk_tokens`.
        max_tokens: bounds an answer when the request does not; left out, the window does.
        window_tokens: lowers the model's own window.
        trust_remote_code: run the Python code that comes with the model.
        preload: load it when the server starts, not at its first request.
        pin: keep it in memory until it is unloaded by name.
        idle: unload it when no request has used it for this time; left out, only when others need its memory.
    """

    path: str
    adapter: str | None = None
    pipeline: str | None = None
    aliases: tuple[str, ...] | dict[str, AliasSettings] = ()
    sampling: SamplingDefaults = SamplingDefaults()
    template_options: dict[str, Any] = {}
    stages: dict[str, dict[str, Any]] = {}
    max_tokens: PositiveInt | None = None
    window_tokens: PositiveInt | None = None
    trust_remote_code: bool = False
    preload: bool = False
    pin: bool = False
    idle: Duration | None = None


class Settings(Table, frozen=True):
    """A whole `models.toml`.

    Options:
        defaults: what a model uses when its own table does not say.
        server: the address, the key and the limits of the HTTP server.
        cache: where blocks live and how many bytes each tier may hold.
        models: the models that clients may name.
    """

    defaults: Defaults = Defaults()
    server: ServerSettings = ServerSettings()
    cache: CacheSettings = CacheSettings()
    models: dict[str, ModelSettings] = {}

"""verify: measure whether the cache changes what a model computes, in every tier.

    omlx verify MODEL [MODEL ...]     folders, hub names, or names of models.toml

Random prompts are cut and edited at random places; what is restored from RAM, from disk and after a restart is
compared with a cold run: bit for bit where prefill chunks end, and within the bound of rounding elsewhere.
"""

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from omlx.cli.local import local_model
from omlx.cli.table import format_table
from omlx.telemetry import configure_logging

if TYPE_CHECKING:
    from omlx.runtime.verify import Report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "models_to_verify", metavar="MODEL", nargs="+", help="a folder, a hub name or a configured name"
    )
    parser.add_argument(
        "--models", metavar="FILE", help="the models.toml to use (default: ./models.toml, if there)"
    )
    parser.add_argument("--pipeline", help="the pipeline to verify (default: the model's own)")
    parser.add_argument("--triples", type=int, default=50, help="prompts to cut and edit (default 50)")
    parser.add_argument("--tokens", type=int, default=1200, help="the longest prompt (default 1200)")
    parser.add_argument("--answer", type=int, default=4, help="tokens of each answer (default 4)")
    parser.add_argument("--seed", type=int, default=0, help="other prompts (default 0)")
    parser.add_argument(
        "--prefill",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="tune the prefill stage: chunk_tokens=64, exact=true, kv_bits=8 (repeatable)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Print what was found; return 1 when the contract is broken."""
    configure_logging(level="error")
    reports = [_verify(options, name) for name in options.models_to_verify]
    if options.json:
        found = [{**msgspec.to_builtins(report), "kept": report.kept} for report in reports]
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        print("\n\n".join(render(report) for report in reports))
    return 0 if all(report.kept for report in reports) else 1


def render(report: "Report") -> str:
    """Return the report as a table under a line about the model."""
    header = (
        "tier",
        "resumed",
        "runs",
        "reused",
        "tokens",
        "largest",
        "median",
        "bound",
        "answers",
        "contract",
    )
    rows = [
        (
            row.tier,
            "on the grid" if row.place == "grid" else "between",
            row.runs,
            f"{row.reused:.1%}",
            row.compared,
            f"{row.largest:.1e}",
            f"{row.median:.1e}",
            f"{row.bound:.1e}",
            "equal" if not row.differing else f"{row.differing} differ, first at token {row.first_differing}",
            "kept" if row.kept else "BROKEN",
        )
        for row in report.rows
    ]
    held = "the median is held to the bound" if report.tips else "the largest difference is held to the bound"
    own = f"a cold run whose chunks end elsewhere differs by {report.largest_cold:.1e} ({report.median_cold:.1e})"
    kind = "exact, " if report.exact else ""
    return f"{report.model}: {kind}{report.device}; {own}; {held}\n{format_table(header, rows)}"


def _verify(options: argparse.Namespace, name: str) -> "Report":
    # loading MLX and mlx-lm takes 2 to 5 s
    from omlx.runtime.bare import BareChain  # noqa: PLC0415
    from omlx.runtime.verify import Extent, verify  # noqa: PLC0415 - 2 s, as above

    local = local_model(argparse.Namespace(models=options.models, overrides=(), model=name))
    model = local.settings.models[local.name]
    tuning = {**model.stages, "prefill": {**model.stages.get("prefill", {}), **_values(options.prefill)}}
    model = msgspec.structs.replace(model, stages=tuning, pipeline=options.pipeline or model.pipeline)
    settings = msgspec.structs.replace(local.settings, models={local.name: model})
    extent = Extent(options.triples, options.tokens, options.answer, options.seed)
    chain = BareChain(settings, local.name, local.base, record=True)
    try:
        with tempfile.TemporaryDirectory(prefix="omlx-verify-") as scratch:
            return verify(chain, Path(scratch), extent)
    finally:
        chain.close()


def _values(pairs: list[str]) -> dict[str, Any]:
    """Return the tuning that KEY=VALUE pairs spell; checked when the pipeline is read."""
    split = [pair.partition("=") for pair in pairs]
    return {key: _value(text) for key, _, text in split}


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text

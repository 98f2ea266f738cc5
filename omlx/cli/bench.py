"""bench: measure this server on this machine.

omlx bench five --model FOLDER_OR_NAME         reuse in five cases, and after a crash
omlx bench grid --model FOLDER_OR_NAME         what it costs that prefill chunks end where messages do
omlx bench speed --model FOLDER_OR_NAME        speed beside mlx-lm by itself, and fairness
omlx bench against --model FOLDER_OR_NAME      side by side with mlx_lm.server
omlx bench server --model FOLDER_OR_NAME       what the server itself takes before a prompt is computed
omlx bench estimates --model FOLDER_OR_NAME    what a dry run foretells beside what then happens
omlx bench soak                                many mixed requests, and what is left of them
"""

import argparse
from types import ModuleType

from omlx.cli import against, estimates, five, grid, overhead, soak, speed

#: Each benchmark: its name, what it is, and the module that has it.
BENCHMARKS: tuple[tuple[str, str, ModuleType], ...] = (
    ("five", "reuse in five cases, and after a crash", five),
    ("grid", "the cost of ending chunks at messages", grid),
    ("speed", "speed beside mlx-lm by itself, and fairness", speed),
    ("against", "side by side with mlx_lm.server", against),
    ("server", "what the server itself takes before prefill", overhead),
    ("estimates", "estimated against real seconds of each stage", estimates),
    ("soak", "many mixed requests, and what is left of them", soak),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    kinds = parser.add_subparsers(title="benchmarks", metavar="BENCHMARK", required=True)
    for name, summary, module in BENCHMARKS:
        verb = kinds.add_parser(name, help=summary, description=module.__doc__)
        verb.formatter_class = argparse.RawDescriptionHelpFormatter
        module.add_arguments(verb)
        verb.set_defaults(bench=module.run)


def run(options: argparse.Namespace) -> int:
    """Run the benchmark that was named."""
    return int(options.bench(options))

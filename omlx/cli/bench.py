"""bench: measure this server on this machine.

omlx bench five --model FOLDER_OR_NAME         reuse in five cases, and after a crash
omlx bench grid --model FOLDER_OR_NAME         what it costs that prefill chunks end where messages do
omlx bench estimates --model FOLDER_OR_NAME    what a dry run foretells beside what then happens
"""

import argparse

from omlx.cli import estimates, five, grid


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    kinds = parser.add_subparsers(title="benchmarks", metavar="BENCHMARK", required=True)
    verb = kinds.add_parser("five", help="reuse in five cases, and after a crash", description=five.__doc__)
    verb.formatter_class = argparse.RawDescriptionHelpFormatter
    five.add_arguments(verb)
    verb.set_defaults(bench=five.run)
    verb = kinds.add_parser("grid", help="the cost of ending chunks at messages", description=grid.__doc__)
    verb.formatter_class = argparse.RawDescriptionHelpFormatter
    grid.add_arguments(verb)
    verb.set_defaults(bench=grid.run)
    summary = "estimated against real seconds of each stage"
    verb = kinds.add_parser("estimates", help=summary, description=estimates.__doc__)
    verb.formatter_class = argparse.RawDescriptionHelpFormatter
    estimates.add_arguments(verb)
    verb.set_defaults(bench=estimates.run)


def run(options: argparse.Namespace) -> int:
    """Run the benchmark that was named."""
    return int(options.bench(options))

"""How long a benchmark takes: a minute by default, or as long as the figures of the documentation took."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def parsed(parser: argparse.ArgumentParser, **whole: object) -> argparse.Namespace:
    """Parse the command line of a benchmark.

    Parameters
    ----------
    whole
        Values of options with `--whole`, where they are not given; without it those of the parser, with which
        the benchmark takes about a minute on a machine of two cores.
    """
    longer = ", ".join(f"{name} {value}" for name, value in whole.items())
    parser.add_argument("--whole", action="store_true", help=f"take longer: {longer}".replace("%", "%%"))
    if "--whole" in sys.argv:
        parser.set_defaults(**whole)
    return parser.parse_args()

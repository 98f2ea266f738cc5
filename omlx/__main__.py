"""Run the command: `python -m omlx`."""

import sys

from omlx.cli import main

sys.exit(main())

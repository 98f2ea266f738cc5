#!/usr/bin/env python
"""Print the parity table of models: `tools/parity.py FOLDER_OR_NAME ...`. The same as `omlx verify`."""

import sys

from omlx.cli import main

sys.exit(main(["verify", *sys.argv[1:]]))

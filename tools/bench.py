#!/usr/bin/env python
"""Measure this server: `tools/bench.py five --model FOLDER_OR_NAME`. The same as `omlx bench`."""

import sys

from omlx.cli import main

sys.exit(main(["bench", *sys.argv[1:]]))

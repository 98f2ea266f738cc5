#!/usr/bin/env python
"""Dry-run a request: `tools/trace.py REQUEST.json --model FOLDER_OR_NAME`. The same as `omlx trace`."""

import sys

from omlx.cli import main

sys.exit(main(["trace", *sys.argv[1:]]))

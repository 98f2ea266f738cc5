#!/usr/bin/env python
"""Write the JSON Schemas beside the pipelines: `tools/pipeline_schema.py`. The same as `omlx schema`."""

import sys
from pathlib import Path

from omlx.cli import main

FOLDER = Path(__file__).resolve().parent.parent / "pipelines"

sys.exit(main(["schema", "--built-in", "--write", str(FOLDER), *sys.argv[1:]]))

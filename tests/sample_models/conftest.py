"""The scripts in ``sample_models`` import each other by name, as they do when they are run from the command line."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "sample_models"
if str(FOLDER) not in sys.path:
    sys.path.append(str(FOLDER))

"""Makes ``layer_models`` and the rewrites' ``before_after`` importable whichever way pytest imports the tests."""

import sys
from pathlib import Path

for _place in (Path(__file__).parent, Path(__file__).parents[1] / "rewrite"):
    sys.path.insert(0, str(_place))

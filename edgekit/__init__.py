"""edgekit takes a trained network to a Raspberry Pi or a Jetson, and measures what it costs on the way.

Importing this package is cheap: it loads no numpy, no interpreter and no converter. The app's entry is
:class:`edgekit.runtime.Model`.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]

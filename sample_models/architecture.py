"""The shape of the sample network, as plain numbers: the PyTorch and the Keras builder both read it from here."""

from __future__ import annotations

ACTIVATIONS = ("relu6", "silu")
"""ReLU6 is what int8 likes best; SiLU is unbounded above with a small negative lobe, and harder for int8."""

STEM_CHANNELS = 16
BLOCKS = (  # inverted residuals: (output channels, stride, expansion factor t)
    (16, 1, 2),
    (24, 2, 4),
    (24, 1, 4),
    (40, 2, 4),
    (40, 1, 4),
)
HEAD_CHANNELS = 128
CLASSES = 10
INPUT_SHAPE = (1, 1, 28, 28)
"""NCHW, float32, (pixel - 127.5) / 127.5."""

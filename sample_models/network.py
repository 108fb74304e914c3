"""The sample network: MobileNetV2's inverted residuals, cut down to 28x28 grey pictures. Needs PyTorch.

40,090 parameters. It comes with ReLU6 and with SiLU; the numbers are in architecture.py.
Every 3x3 convolution pads one pixel on each side, also those with stride 2.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]
from architecture import BLOCKS, CLASSES, HEAD_CHANNELS, STEM_CHANNELS
from torch import nn


def _activation(name: str) -> nn.Module:
    return {"relu6": nn.ReLU6, "silu": nn.SiLU}[name]()


def _convolution(
    inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1, activation: str | None
) -> nn.Sequential:
    """Convolution, batch normalisation and, unless it is None, the activation."""
    layers = [
        nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    if activation is not None:
        layers.append(_activation(activation))
    return nn.Sequential(*layers)


class InvertedResidual(nn.Module):  # type: ignore[misc, unused-ignore]
    """1x1 expansion, 3x3 depthwise, linear 1x1 projection (Sandler et al. 2018, "MobileNetV2", figure 4)."""

    def __init__(self, inputs: int, outputs: int, *, stride: int, expansion: int, activation: str) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.residual = stride == 1 and inputs == outputs
        self.expand = _convolution(inputs, hidden, 1, activation=activation)
        self.depthwise = _convolution(hidden, hidden, 3, stride=stride, groups=hidden, activation=activation)
        self.project = _convolution(hidden, outputs, 1, activation=None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.project(self.depthwise(self.expand(x)))
        return x + y if self.residual else y


class FashionNet(nn.Module):  # type: ignore[misc, unused-ignore]
    """The whole network: (n, 1, 28, 28) float32 -> (n, 10) logits."""

    def __init__(self, activation: str) -> None:
        super().__init__()
        self.stem = _convolution(1, STEM_CHANNELS, 3, stride=2, activation=activation)
        blocks, channels = [], STEM_CHANNELS
        for outputs, stride, expansion in BLOCKS:
            blocks.append(
                InvertedResidual(channels, outputs, stride=stride, expansion=expansion, activation=activation)
            )
            channels = outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = _convolution(channels, HEAD_CHANNELS, 1, activation=activation)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(HEAD_CHANNELS, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.pool(self.head(self.blocks(self.stem(x)))).flatten(1))


def count_parameters(network: nn.Module) -> int:
    """Trainable parameters: convolutions, batch normalisation's scale and offset, the classifier."""
    return sum(parameter.numel() for parameter in network.parameters())


def save_checkpoint(network: nn.Module, path: Path) -> None:
    """Write the weights and the batch-normalisation statistics as plain float32 arrays (``.npz``, no pickle)."""
    state = {
        name: value.detach().contiguous().numpy()
        for name, value in network.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        np.savez_compressed(file, **state)
    partial.replace(path)


def load_checkpoint(path: Path, activation: str) -> FashionNet:
    """The network with the weights of :func:`save_checkpoint`, ready for inference.

    Raises RuntimeError (PyTorch's own) when the arrays do not fit the network.
    """
    network = FashionNet(activation)
    with np.load(path, allow_pickle=False) as arrays:
        state = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    for name, value in network.state_dict().items():
        if name.endswith("num_batches_tracked"):
            state[name] = torch.zeros_like(value)
    network.load_state_dict(state)
    network.eval()
    return network

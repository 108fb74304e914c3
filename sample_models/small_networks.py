"""Small networks with random weights for trying converters: an attention network and a recurrent one, as PyTorch modules.

    edgekit convert small_networks:vision_transformer --input-shape x=1x3x32x32 --recipe float32 --out vit.bundle
    edgekit convert small_networks:lstm --input-shape x=1x20x16 --recipe float32 --out lstm.bundle

(called from this folder; needs the front end torch). The weights are drawn with a fixed seed.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

SEED = 11


class Block(nn.Module):
    """Pre-norm self-attention and a GELU perceptron, written out in plain operators."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.grow, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, width) to the same."""
        batch, tokens, width = x.shape
        q, k, v = (
            self.qkv(self.norm1(x)).reshape(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        )
        weights = torch.softmax(q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5, dim=-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, tokens, width))
        return x + self.shrink(nn.functional.gelu(self.grow(self.norm2(x))))


class VisionTransformer(nn.Module):
    """Patches of 8 x 8 of a 32 x 32 picture, four blocks of width 48, mean over tokens, ten classes."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 48, 8, stride=8)
        self.position = nn.Parameter(torch.randn(1, 16, 48) * 0.02)
        self.blocks = nn.Sequential(*(Block(48, 4) for _ in range(4)))
        self.head = nn.Linear(48, 10)

    def forward(self, x: Tensor) -> Tensor:
        """(1, 3, 32, 32) to (1, 10)."""
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.position
        return self.head(self.blocks(tokens).mean(1))


class Recurrent(nn.Module):
    """One LSTM layer over 20 steps of 16 values, five classes from the last step."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(16, 32, batch_first=True)
        self.head = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        """(1, 20, 16) to (1, 5)."""
        steps, _ = self.lstm(x)
        return self.head(steps[:, -1])


def vision_transformer() -> nn.Module:
    """A small ViT with seeded random weights."""
    torch.manual_seed(SEED)
    return VisionTransformer()


def lstm() -> nn.Module:
    """A small LSTM classifier with seeded random weights."""
    torch.manual_seed(SEED)
    return Recurrent()

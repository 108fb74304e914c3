"""Train the sample networks on Fashion-MNIST and write their checkpoints.

    python sample_models/train.py relu6 silu
    python sample_models/train.py relu6 --epochs 1 --out /tmp/try

Needs PyTorch (CPU is enough) and the Debian package dataset-fashion-mnist. Seeded and deterministic: the same PyTorch
build with the same --threads on the same kind of CPU gives the same weights. The test images are looked at once,
after the last epoch; nothing is chosen by them.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import fashion_mnist
import torch  # type: ignore[import-not-found, unused-ignore]
from architecture import ACTIVATIONS
from network import FashionNet, count_parameters, load_checkpoint, save_checkpoint

BATCH = 128
PEAK_LEARNING_RATE = 8e-3
WEIGHT_DECAY = 1e-2


def load_part(folder: Path, part: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (n, 1, 28, 28) float32 in -1..1 and labels (n,) int64 of ``part`` ("train" or "t10k")."""
    pixels = fashion_mnist.read_images(folder, part)[:, None]
    images = torch.from_numpy(fashion_mnist.normalise(pixels))
    return images, torch.from_numpy(fashion_mnist.read_labels(folder, part).astype("int64"))


def train(activation: str, images: torch.Tensor, labels: torch.Tensor, *, epochs: int, seed: int) -> FashionNet:
    """A trained network: AdamW, one-cycle learning rate, horizontal flips."""
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    network = FashionNet(activation)
    # A third less time on the CPU for these small convolutions.
    network.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(network.parameters(), lr=PEAK_LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    steps = len(images) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_LEARNING_RATE, total_steps=epochs * steps)
    for epoch in range(epochs):
        started, total = time.monotonic(), 0.0
        network.train()
        for batch in torch.randperm(len(images))[: steps * BATCH].split(BATCH):
            x = images[batch]
            flip = torch.rand(BATCH) < 0.5
            x = torch.where(flip[:, None, None, None], x.flip(3), x)
            loss = torch.nn.functional.cross_entropy(network(x), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        seconds = time.monotonic() - started
        print(f"{activation}: epoch {epoch + 1}/{epochs}, loss {total / steps:.4f}, {seconds:.0f} s", flush=True)
    network.eval()
    return network


def accuracy(network: FashionNet, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of right answers, 0..1."""
    with torch.no_grad():
        right = sum(
            int((network(x).argmax(1) == y).sum()) for x, y in zip(images.split(500), labels.split(500), strict=True)
        )
    return right / len(labels)


def main() -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Train the sample networks on Fashion-MNIST.")
    parser.add_argument("activation", nargs="+", choices=ACTIVATIONS)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1, help="part of the recipe: sums round differently")
    parser.add_argument("--data", type=Path, default=fashion_mnist.FOLDER, help="folder with the four .gz files")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="where fashion_*.npz go")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    try:
        images, labels = load_part(options.data, "train")
        test_images, test_labels = load_part(options.data, "t10k")
    except fashion_mnist.DataSetMissingError as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    for activation in options.activation:
        network = train(activation, images, labels, epochs=options.epochs, seed=options.seed)
        path = options.out / f"fashion_{activation}.npz"
        save_checkpoint(network, path)
        value = accuracy(load_checkpoint(path, activation), test_images, test_labels)
        print(
            f"{path}: {count_parameters(network)} parameters, {value:.2%} on {len(test_labels)} test images", flush=True
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Makes the small sound models beside this script, which the fuzzing damages: run once by each front end's interpreter.

FRONTEND/tensorflow/bin/python make.py keras     tiny.keras, tiny.h5, tiny_savedmodel/
FRONTEND/torch/bin/python make.py torch          tiny.pt2
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent


def keras_models() -> None:
    """One network in the three forms of Keras and TensorFlow."""
    import keras  # type: ignore[import-not-found, unused-ignore]

    keras.utils.set_random_seed(0)
    layers = [
        keras.layers.Input((6, 6, 1), name="picture"),
        keras.layers.Conv2D(2, 3, activation="relu", name="conv"),
        keras.layers.BatchNormalization(name="norm"),
        keras.layers.GlobalAveragePooling2D(name="mean"),
        keras.layers.Dense(3, activation="softmax", name="scores"),
    ]
    model = keras.Sequential(layers, name="tiny")
    model.save(HERE / "tiny.keras")
    model.save(HERE / "tiny.h5")
    model.export(HERE / "tiny_savedmodel", verbose=False)


def torch_program() -> None:
    """A convolution and a linear layer as an exported program."""
    import torch  # type: ignore[import-not-found, unused-ignore]

    torch.manual_seed(0)

    class Tiny(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(1, 2, 3)
            self.scores = torch.nn.Linear(2, 3)

        def forward(self, picture):  # type: ignore[no-untyped-def, unused-ignore]
            return self.scores(torch.relu(self.conv(picture)).mean((2, 3)))

    program = torch.export.export(Tiny().eval(), (torch.zeros(1, 1, 6, 6),))
    for node in program.graph.nodes:
        for word in ("stack_trace", "nn_module_stack", "torch_fn"):  # they name folders of the machine
            node.meta.pop(word, None)
    torch.export.save(program, HERE / "tiny.pt2")


if __name__ == "__main__":
    torch_program() if sys.argv[1] == "torch" else keras_models()

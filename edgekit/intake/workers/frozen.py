"""A TensorFlow function frozen, saved under keys that carry positions, and converted to float TFLite.

Shared by the tasks that come to TensorFlow from ONNX, Keras and SavedModels. Names are not trusted to a converter: signature keys are
``input_0000``, ``output_0000``, ..., and whoever asked knows which name each stands for.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple


class NotBuiltin(Exception):
    """Operators that TFLite has no kernel of its own for: ``select`` need TensorFlow's ("Flex"), ``custom`` need the user's."""

    def __init__(self, select: List[str], custom: List[str]) -> None:
        super().__init__(f"no TFLite kernel for: {', '.join(select + custom)}")
        self.select = select
        self.custom = custom


def keys(what: str, count: int) -> List[str]:
    """Signature keys; zero-padded, because TensorFlow flattens dictionaries in the order of their keys."""
    return [f"{what}_{position:04d}" for position in range(count)]


def specs(shapes: Sequence[Tuple[Sequence[int], Any]]) -> List[Any]:
    """Tensor specs named by the input keys, from (shape, dtype) in order."""
    import tensorflow as tf

    return [
        tf.TensorSpec(shape, dtype, name=key)
        for (shape, dtype), key in zip(shapes, keys("input", len(shapes)), strict=True)
    ]


def save(concrete: Any, input_specs: Sequence[Any], outputs: int, folder: Path) -> None:
    """Freeze ``concrete`` (takes tensors in order, gives a list of ``outputs`` tensors) and save it in ``folder``.

    Frozen, so that nothing of Keras is saved: its own metadata is what takes a minute and a gigabyte. Loops stay functions, as the
    TFLite converter wants them.
    """
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    frozen = convert_variables_to_constants_v2(concrete, lower_control_flow=False)
    output_keys = keys("output", outputs)

    def serve(*tensors: Any) -> Dict[str, Any]:
        results = frozen(*tensors)
        return dict(zip(output_keys, results if isinstance(results, (list, tuple)) else [results], strict=True))

    module = tf.Module()
    module.serve = tf.function(serve, input_signature=list(input_specs))
    tf.saved_model.save(
        module,
        str(folder),
        signatures={"serving_default": module.serve.get_concrete_function()},
        # Nobody trains it, and gradients that a layer defines itself (SiLU's) cannot be saved apart from the layer.
        options=tf.saved_model.SaveOptions(experimental_custom_gradients=False),
    )


def to_tflite(folder: Path, written: Path) -> None:
    """The saved function as float TFLite with built-in operators only. Raises :class:`NotBuiltin` with the operators that are none."""
    import tensorflow as tf

    converter = tf.lite.TFLiteConverter.from_saved_model(str(folder), signature_keys=["serving_default"])
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    try:
        written.write_bytes(converter.convert())
    except Exception as error:
        select, custom = listed(str(error), "TF Select ops"), listed(str(error), "Custom ops")
        if select or custom:
            raise NotBuiltin(select, custom) from error
        raise


def listed(message: str, title: str) -> List[str]:
    """The operators that the converter's message names in the line ``title: A, B, C``."""
    found = re.search(rf"^{title}: (.+)$", message, re.MULTILINE)
    return [word.strip() for word in found.group(1).split(",")] if found else []

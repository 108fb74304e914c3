"""What runs in the child process of :mod:`edgekit.quantize.litert`: ``python -m edgekit.quantize.litert_worker REQUEST.json``."""

from __future__ import annotations

import json
import re
import sys
import traceback
from pathlib import Path
from typing import Any

LEFT_FLOAT = ("PADV2",)
"""Operators that litert-quantizer 0.11 lists and then fails on, taking the whole model with it: left float, they show up in the audit
by name instead."""


def quantize(request: dict[str, Any]) -> dict[str, Any]:
    """Quantises as the request's scheme says, with its ranges where there are any; writes the file that the request names."""
    import numpy as np
    from litert_quantizer import algorithm_manager, qtyping, quantizer

    engine = quantizer.Quantizer(request["float"])
    _configure(engine, request["scheme"])
    for operator in LEFT_FLOAT:
        engine.update_quantization_recipe(
            ".*", qtyping.TFLOperationName[operator], algorithm_key=algorithm_manager.AlgorithmName.NO_QUANTIZE
        )
    for result in request[
        "left_float"
    ]:  # the engine knows an operator by the names of its results, each followed by a semicolon
        engine.update_quantization_recipe(
            f"^{re.escape(result)};?$",
            qtyping.TFLOperationName.DIV,
            algorithm_key=algorithm_manager.AlgorithmName.NO_QUANTIZE,
        )
    # Without axes: the engine takes such a scale for a constant of any rank, and one of shape (1, 1) for those of rank 2 alone.
    ranges = request["ranges"] and {
        name: {"min": np.array(low, np.float32), "max": np.array(high, np.float32)}
        for name, (low, high) in request["ranges"].items()
    }
    result = engine.quantize(ranges, enable_progress_bar=False, enable_progress_report=False)
    Path(request["int8"]).write_bytes(result.quantized_model)
    return {"ok": True}


def _configure(engine: Any, scheme: dict[str, str]) -> None:
    """The engine's own recipe for a ``[quantize]`` of ours."""
    from litert_quantizer import algorithm_manager, qtyping

    every, operators = qtyping.TFLOperationName.ALL_SUPPORTED, qtyping.TFLOperationName
    if scheme["weights"] == "float16":
        weights = qtyping.TensorQuantizationConfig(num_bits=16, dtype=qtyping.TensorDataType.FLOAT)
        config = qtyping.OpQuantizationConfig(
            weight_tensor_config=weights,
            compute_precision=qtyping.ComputePrecision.FLOAT,
            explicit_dequantize=True,
        )
        casting = algorithm_manager.AlgorithmName.FLOAT_CASTING
        engine.update_quantization_recipe(".*", every, config, algorithm_key=casting)
    elif scheme["activations"] == "dynamic":
        engine.add_dynamic_config(".*", every, num_bits=8)
    else:
        bits = 16 if scheme["activations"] == "int16" else 8
        engine.add_static_config(".*", every, activation_num_bits=bits, weight_num_bits=8)
        # One scale for each channel of a constant operand is written and then not read by the kernel: the products are noise.
        whole = qtyping.QuantGranularity.TENSORWISE
        engine.add_static_config(
            ".*", operators.BATCH_MATMUL, activation_num_bits=bits, weight_num_bits=8, weight_granularity=whole
        )
        if scheme["io"] == "float32":
            for end in (operators.INPUT, operators.OUTPUT):
                none = algorithm_manager.AlgorithmName.NO_QUANTIZE
                engine.update_quantization_recipe(".*", end, algorithm_key=none)


def main(request_path: str) -> int:
    """Carry out one request; ``quantize-result.json`` beside it says how it went."""
    try:
        result = quantize(json.loads(Path(request_path).read_text()))
    except Exception as error:
        result = {
            "ok": False,
            "type": type(error).__name__,
            "message": str(error)[:2000],
            "trace": traceback.format_exc()[-8000:],
        }
    Path(request_path).with_name("quantize-result.json").write_text(json.dumps(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

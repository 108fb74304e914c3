"""What to change in an export where a kind of operator is what goes wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_UNROLL = "export with static shapes, so that the steps can be written out; or give the states as inputs and outputs"
_APP = "end the export before it and compute the rest in the app"

_ADVICE: dict[str, str] = {
    "Resize": "export it with coordinate_transformation_mode=half_pixel or align_corners and mode=linear or nearest, at a fixed whole scale",
    "Upsample": "export at opset 11 or later, where it is Resize",
    "GridSample": _APP,
    "RoiAlign": _APP,
    "MaxRoiPool": _APP,
    "NonMaxSuppression": "export the raw boxes and scores, and suppress in the app",
    "DeformConv": "train with ordinary convolutions, or keep this layer off the board",
    "ConvTranspose": "use output_padding=0, dilations of 1 and group=1; or upsample and convolve",
    "AveragePool": "use ceil_mode=0, dilations of 1 and count_include_pad=0, and pad explicitly before it",
    "MaxPool": "use ceil_mode=0 and dilations of 1, and pad explicitly before it",
    "LpPool": "write it out with Pow and AveragePool",
    "Pad": "use constant mode with a constant value and constant sizes",
    "LSTM": _UNROLL,
    "GRU": f"use constant weights and layout=0; {_UNROLL}",
    "RNN": _UNROLL,
    "Loop": "unroll it: trace the network with fixed sizes instead of scripting it",
    "If": "export the branch that is used: trace the network instead of scripting it",
    "Scan": "write the steps out",
    "ScatterND": "replace it by Concat, Where or Slice with constant positions",
    "ScatterElements": "replace it by Where or OneHot with constant positions",
    "GatherND": "replace it by Gather with constant positions",
    "Einsum": "write it as MatMul with Transpose and Reshape",
    "ArgMax": "use select_last_index=0",
    "ArgMin": "use select_last_index=0",
    "TopK": "use constant k, largest=1 and sorted=1",
    "Mod": "use fmod=0 on integers, or x - floor(x / y) * y",
    "Reshape": "give it a constant shape: export with static sizes",
    "Expand": "give it a constant shape: export with static sizes",
    "Slice": "give it constant starts, ends and steps above 0",
    "Split": "give it constant sizes",
    "Unique": _APP,
    "NonZero": f"mask with Where instead, or {_APP}",
    "Det": _APP,
    "DFT": _APP,
    "STFT": "compute the spectrum in the app, or as a convolution with fixed kernels",
    "QuantizeLinear": "give the float model; edgekit quantises",
    "DequantizeLinear": "give the float model; edgekit quantises",
    "Cast": "keep integers within 32 bits and floats in float32",
    "Attention": "export at an opset below 23, where it is written out as MatMul and Softmax",
    "LayerNormalization": "export at an opset below 17, where it is written out",
    "GroupNormalization": "export at an opset below 18, where it is written out",
    "InstanceNormalization": "export in evaluation mode with static sizes",
    "BatchNormalization": "export in evaluation mode (PyTorch: model.eval())",
}


def advice_for(operator: str, attributes: Mapping[str, Any]) -> str:
    """What to change in the export for ``operator`` with ``attributes``; a general way on where nothing special is known."""
    if operator in ("AveragePool", "MaxPool") and attributes.get("ceil_mode"):
        return f"{operator}: export with ceil_mode=False and pad the map so that the sizes come out even"
    if operator in _ADVICE:
        return f"{operator}: {_ADVICE[operator]}"
    return f"{operator}: write it with other operators in the network, or end the export before it"

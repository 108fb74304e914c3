"""Quantize: a float model and the ranges of its tensors become an int8 model, audited operator by operator."""

"""Making an ONNX graph digestible: small exact rewrites for what converters refuse or get wrong, one a module.

They are for a second attempt, when the graph as it is failed or did not equal its source. Each pass is a function ``apply(model)`` that changes a
``ModelProto`` in place and says whether it did; :func:`edgekit.intake.digest.run.digest` keeps a change only if ONNX Runtime
computes the same after it.
"""

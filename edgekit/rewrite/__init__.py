"""Rewrite: passes over a float ``.tflite``, one a file, each value for value the same network as before.

A pass is a function ``apply(model, ...)`` that edits a ``ModelT`` in place and returns a sentence for each thing that it changed. What
comes out is judged by parity again, so a pass that is wrong is never delivered.
"""

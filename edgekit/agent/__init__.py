"""What runs on the board: a supervisor that needs only Python, and workers that hold the interpreter.

The supervisor survives a cut link and a crash of the interpreter's native code, samples the sensors beside the measurement, and
leaves a readable run folder however the run ends. Started as ``python3 agent.pyz run FOLDER``.
"""

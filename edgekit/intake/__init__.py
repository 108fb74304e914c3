"""Intake: model files of every supported format become one :class:`edgekit.values.FloatModel`."""

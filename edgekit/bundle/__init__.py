"""Bundle: the folder that ships, with everything that is known about the model in it."""

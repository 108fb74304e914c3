"""The way to a board: run a command, move a file, start a job that outlives the connection. Knows nothing of models."""

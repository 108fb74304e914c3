"""Calibrate: representative data become the value range of every tensor."""

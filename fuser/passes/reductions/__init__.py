"""Passes over reductions and matrix products."""

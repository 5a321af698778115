"""Loops and branches in C, over the kernels of their bodies."""

"""Kernels written by hand over grids of blocks, as Triton."""

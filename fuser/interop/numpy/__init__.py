"""NumPy functions on traced arrays, for `accelerate`."""

"""Library calls of the C backend: matrix products, sorts, scatters, triangular systems, and the eval rules."""

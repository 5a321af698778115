"""torch functions on traced tensors, for `accelerate`."""

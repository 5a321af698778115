"""What jitted functions are: jit, the stages a user can look into, signatures, warnings, eager control flow, pickles."""

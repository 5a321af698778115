"""Graph → Graph rewrites that a target needs before fusion groups are formed."""

"""Passes over scan, while and cond."""

"""Tracing: the current Trace, tracers, `bind`, and staging a Python function to a Graph."""

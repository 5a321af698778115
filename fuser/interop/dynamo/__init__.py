"""`torch.compile(model, backend="fuser")`: graphs of core ATen operations as fused programs, and torch for what is left."""

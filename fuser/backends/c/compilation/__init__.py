"""From kernels' texts to loaded functions: outlining, sharing, translation units."""

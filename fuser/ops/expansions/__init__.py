"""Functions that libraries compute on the host, written by other primitives (`Primitive.expand`): loops of single elements in
float64, which become kernels, and factorisations as loops of products."""

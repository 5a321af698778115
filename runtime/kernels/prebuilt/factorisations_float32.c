// Factorisations of float32, as `on_demand` writes them.
#define T float
#define REAL float
#define NAMED(function) function##_float32
#include "factorisations.h"

// Factorisations of float64, as `on_demand` writes them.
#define T double
#define REAL double
#define NAMED(function) function##_float64
#include "factorisations.h"

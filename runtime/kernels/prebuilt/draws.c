// Numbers of NumPy's generator.
#include "../draws.c"

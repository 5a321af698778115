// What functions of whole vectors use, for floats or doubles: their types, and the instructions that have no operator.
typedef REAL lanes_w __attribute__((vector_size(64)));
typedef INTEGER bits_of_lanes_w __attribute__((vector_size(64)));
#define OF_WIDTH(name) __builtin_ia32_##name##SUFFIX512_mask
#define ROUNDED __builtin_ia32_rndscaleSUFFIX_mask
#define FUSED(a, b, c) OF_WIDTH(vfmadd)(a, b, c, -1, 4)
#define WHERE(test, x) ((lanes_w)((bits_of_lanes_w)(x) & (test)))

// Products whose first matrix is made of patches of an array: element (i, p) lies `ra` times i and `offsets[p]` away. A tile of
// rows and up to three vectors stays in registers over the whole of k, as in unpacked.c; rows are most where they are narrow,
// for then each vector of the second matrix serves most of them.
#ifdef PATCHES
#define PATCH(R, V)                                                                                                    \
  static FUSED void patch_##R##_##V(int64_t k, const T *a, int64_t ra, const int64_t *offsets, const T *b, int64_t rb,  \
                                    T *c, int64_t rc, lanes last) {                                                    \
    vec acc[R][V];                                                                                                     \
    _Pragma("GCC unroll 16") for (int i = 0; i < R; ++i) {                                                             \
      _Pragma("GCC unroll 4") for (int v = 0; v < V; ++v) acc[i][v] = (vec){0};                                        \
    }                                                                                                                  \
    for (int64_t p = 0; p < k; ++p, b += rb) {                                                                         \
      const T *const at = a + offsets[p];                                                                               \
      vec row[V];                                                                                                      \
      _Pragma("GCC unroll 4") for (int v = 0; v + 1 < V; ++v) row[v] = *(const vec *)(b + v * VL);                     \
      row[V - 1] = load_part(b + (V - 1) * VL, last);                                                                  \
      _Pragma("GCC unroll 16") for (int i = 0; i < R; ++i) {                                                           \
        _Pragma("GCC unroll 4") for (int v = 0; v < V; ++v) acc[i][v] += at[i * ra] * row[v];                          \
      }                                                                                                                \
    }                                                                                                                  \
    _Pragma("GCC unroll 16") for (int i = 0; i < R; ++i) {                                                             \
      _Pragma("GCC unroll 4") for (int v = 0; v + 1 < V; ++v) *(vec *)(c + i * rc + v * VL) = acc[i][v];               \
      store_part(c + i * rc + (V - 1) * VL, acc[i][V - 1], last);                                                      \
    }                                                                                                                  \
  }
PATCH(1, 1) PATCH(2, 1) PATCH(4, 1) PATCH(8, 1)
PATCH(1, 2) PATCH(2, 2) PATCH(4, 2)
PATCH(1, 3) PATCH(2, 3) PATCH(4, 3)
#if DR == 8
PATCH(16, 1) PATCH(8, 2) PATCH(8, 3)
#define MOST_ROWS 16
#else
#define patch_16_1 0
#define patch_8_2 0
#define patch_8_3 0
#define MOST_ROWS 8
#endif
typedef void (*patch)(int64_t, const T *, int64_t, const int64_t *, const T *, int64_t, T *, int64_t, lanes);
static const patch patch_of[5][3] = {
  {patch_1_1, patch_1_2, patch_1_3}, {patch_2_1, patch_2_2, patch_2_3}, {patch_4_1, patch_4_2, patch_4_3},
  {patch_8_1, patch_8_2, patch_8_3}, {patch_16_1, 0, 0},
};

// The product of m rows and n columns; some rows are taken twice where m is no multiple of those of a tile.
static void patch_block(int64_t m, int64_t n, int64_t k, const T *a, int64_t ra, const int64_t *offsets, const T *b, int64_t rb,
                        T *c, int64_t rc) {
  const int64_t vectors = parts(n, VL), most_of = vectors == 4 ? 2 : least(vectors, 3);
  for (int64_t v = 0; v < vectors; v += most_of) {
    const int64_t these = least(most_of, vectors - v), j = v * VL;
    int size = 0;
    while (2 << size <= (these == 1 ? MOST_ROWS : MOST_ROWS / 2) && 2 << size <= m) ++size;
    const int64_t rows = 1 << size;
    const lanes last = lanes_of(n - j - (these - 1) * VL);
    for (int64_t i = 0; i < m; i += rows) {
      const int64_t r = least(i, m - rows);
      patch_of[size][these - 1](k, a + r * ra, ra, offsets, b + j, rb, c + r * rc + j, rc, last);
    }
  }
}
#endif

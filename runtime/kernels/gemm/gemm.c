// gemm(buffers, sizes): one product, or a batch of products, of matrices with any strides.
//
// sizes: M N K, the strides of A (m, k), of B (k, n) and of C's rows, whether there is an epilogue (1) and whether
// by tables the transposed product is computed, whose blocks are transposed as they are handed on (2), and the number of batch
// dimensions; for each of those its extent and the strides of A, B and C. All in elements. buffers: A, B and C; with an epilogue
// A, B, the epilogue, its buffers and its sizes. tables(buffers, sizes): the same, where both are read by tables, made of the
// dimensions of rows, columns and depth that follow those sizes. tables_of_rows(buffers, sizes): the same in tiles for few rows,
// mostly a multiple of 8.
#define FLOPS_OF_TEAM (3 << 20)  // below which a second thread does not pay
#define BYTES_OF_TEAM (1 << 20)

#ifdef BY_TABLES
#define gemm tables
#endif
#ifdef ROWS_OF_KERNELS
#define tables tables_of_rows
#endif

static void one(const job *j, int threads) {
#ifdef BY_TABLES
  if (is_tiled(j)) tiled_product(j, threads);
  else if (is_deep(j)) deep_product(j, threads);
  else if (is_narrow(j)) narrow_product(j, threads);
  else if (is_flat(j)) flat_product(j, threads);
  else packed_product(j, threads);
#else
  if (is_tiled(j)) tiled_product(j, threads);
  else if (is_vector(j)) vector_product(j, threads);
  else if (is_inner(j)) inner_product(j, threads);
  else if (is_inner_of_few(j)) inner_product_of_few(j, threads);
  else if (is_turned_direct(j)) turned_product(j, threads);
  else if (is_narrow(j) && !is_deep(j)) narrow_product(j, threads);
  else if (is_direct(j)) direct_product(j, threads);
  else if (is_deep(j)) deep_product(j, threads);
  else if (is_flat(j)) flat_product(j, threads);
  else packed_product(j, threads);
#endif
}

static void item_of(job *j, void **buffers, const int64_t *sizes, int64_t item) {
  j->A = buffers[0], j->B = buffers[1], j->C = j->call ? 0 : buffers[2], j->item = item;
  int64_t rest = item;
  for (int64_t d = sizes[9]; d-- > 0;) {
    const int64_t *dimension = sizes + 10 + 4 * d, outer = d > 0 ? rest / dimension[0] : 0;
    const int64_t position = rest - outer * dimension[0];
    rest = outer;
    j->A += position * dimension[1], j->B += position * dimension[2];
    if (!j->call) j->C += position * dimension[3];
  }
  if (j->crosswise) {
    const IN *const first = j->A;
    j->A = j->B, j->B = first;
  }
}

void gemm(void **buffers, const int64_t *sizes) {
  int64_t batch = 1;
  for (int64_t d = 0; d < sizes[9]; ++d) batch *= sizes[10 + 4 * d];
  const int64_t M = sizes[0], N = sizes[1], K = sizes[2];
  job whole = {M, N, K, sizes[3], sizes[4], sizes[5], sizes[6], sizes[7]};
  if (sizes[8] & 1) whole.call = (epilogue)buffers[2], whole.buffers = buffers[3], whole.sizes = buffers[4];
  poller poll = new_poller();
  whole.poll = &poll;
  whole.crosswise = sizes[8] >> 1;
#ifdef BY_TABLES
  make_tables(&whole, sizes + 10 + 4 * sizes[9]);
#else
  choose_reading(&whole);
#endif
  const int64_t work = 2 * M * N * K, moved = (M * K + K * N + M * N) * (int64_t)sizeof(IN);
  const int pays = batch * work > FLOPS_OF_TEAM || batch * moved > BYTES_OF_TEAM;
  const int threads = pays && !omp_in_parallel() ? omp_get_max_threads() : 1;
  const int together = threads > 1 && (batch >= 4 * threads || (batch > 1 && work < FLOPS_OF_TEAM));
  if (together) {
    const int64_t chunk = most(1, batch / (8 * threads));
    #pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t first = 0; first < batch; first += chunk) {
      job j = whole;
      for (int64_t item = first; item < least(batch, first + chunk) && !(item % 16 == 15 && interrupted(&poll)); ++item) {
        item_of(&j, buffers, sizes, item);
        one(&j, 1);
      }
    }
  } else {
    for (int64_t item = 0; item < batch && !(item % 16 == 15 && interrupted(&poll)); ++item) {
      item_of(&whole, buffers, sizes, item);
      one(&whole, threads);
    }
  }
  tidy();
}

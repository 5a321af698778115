// What pow_avx512.h has of its own for floats, within 1.06 ulp: minimax polynomials, by Lawson's algorithm, and numbers of 14 bits in
// the high table.
#define LANES(x) ((lanes_w){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x})
#define LOG2E LANES(0x1.715476p+0f)
#define LOG2E_REST LANES(0x1.4ae0c0p-26f)
#define LAYER 18
#define FARTHEST LANES(200)
static const lanes_w inverse_w[2] = {{1.0f, 0.953125f, 0.921875f, 0.90625f, 0.875f, 0.859375f, 0.828125f, 0.8125f, 0.796875f, 0.765625f, 0.75f, 0.734375f, 0.71875f, 0.703125f, 0.6875f, 0.671875f},
{0.65625f, 0.640625f, 0.640625f, 0.625f, 0.609375f, 0.59375f, 0.59375f, 0.578125f, 0.5625f, 0.5625f, 0.546875f, 0.53125f, 0.53125f, 0.515625f, 0.515625f, 0.5f}};
static const lanes_w log_high_w[2] = {{0.0f, 0.0692749023f, 0.117370605f, 0.142028809f, 0.192626953f, 0.21862793f, 0.272094727f, 0.299560547f, 0.327575684f, 0.385314941f, 0.415039062f, 0.44543457f, 0.47644043f, 0.508117676f, 0.540588379f, 0.573730469f},
{0.607666016f, 0.642456055f, 0.642456055f, 0.678100586f, 0.714599609f, 0.752075195f, 0.752075195f, 0.790527344f, 0.830078125f, 0.830078125f, 0.870727539f, 0.912536621f, 0.912536621f, 0.955627441f, 0.955627441f, 1.0f}};
static const lanes_w log_low_w[2] = {{0.0f, -1.22399069e-05f, -1.36548306e-05f, -9.8037217e-06f, 1.81248179e-05f, 1.23567879e-05f, -1.51811255e-05f, -2.65016098e-07f, -1.02556521e-06f, -2.47855223e-05f, -1.56322119e-06f, -2.34219897e-05f, -2.38574444e-06f, 2.92278892e-05f, -1.99975439e-05f, 4.77654794e-06f},
{1.65615966e-05f, -8.0593054e-06f, -8.0593054e-06f, -2.86808245e-05f, -1.82823726e-06f, -2.70875603e-06f, -2.70875603e-06f, 1.92906209e-05f, -3.12644238e-06f, -3.12644238e-06f, -1.05560075e-05f, 5.37655922e-07f, 5.37655922e-07f, -2.15607652e-05f, -2.15607652e-05f, 0.0f}};

IN_LINE lanes_w looked_up_w(const lanes_w *table, bits_of_lanes_w layer) { return __builtin_shuffle(table[0], table[1], layer); }

// (log2(1 + r) - log2(e)·(r - r²/2)) / r³.
IN_LINE lanes_w log_part_w(lanes_w r, lanes_w square) {
  lanes_w p = FUSED(LANES(-2.40754261e-01f), r, LANES(2.88818647e-01f));
  p = FUSED(p, r, LANES(-3.60673634e-01f));
  return FUSED(p, r, LANES(4.80898263e-01f));
}

// (2^x - 1) / x.
IN_LINE lanes_w power_part_w(lanes_w x) {
  lanes_w q = FUSED(LANES(1.53531844e-04f), x, LANES(1.33993698e-03f));
  q = FUSED(q, x, LANES(9.61844157e-03f));
  q = FUSED(q, x, LANES(5.55033125e-02f));
  q = FUSED(q, x, LANES(2.40226477e-01f));
  return FUSED(q, x, LANES(6.93147182e-01f));
}

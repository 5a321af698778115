// a^y for a ≥ 0, 16 floats at once, with what AVX-512 has and compilers do not make of scalar code: exponents and mantissas taken
// apart, tables in registers, powers of two that overflow and underflow by themselves. Within 1.06 ulp.
//
// log2(a) = k + log2(1 / i) + log2(1 + r), where a = 2^k·m, i of 6 bits is near 1 / m and r = m·i - 1 is exact, |r| ≤ 1/32. What decides is
// kept as sums of two numbers: the first two terms of log2(1 + r), their sum with the table's numbers, of which the high ones have
// 14 bits so that k adds to them exactly, and the product with y. Polynomials are minimax, by Lawson's algorithm.
typedef float lanes_f32 __attribute__((vector_size(64)));
typedef int bits_of_lanes_f32 __attribute__((vector_size(64)));
#define LANES(x) ((lanes_f32){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x})
#define FUSED(a, b, c) __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4)
#define WHERE(test, x) ((lanes_f32)((bits_of_lanes_f32)(x) & (test)))
#define LOG2E LANES(0x1.715476p+0f)
#define LOG2E_REST LANES(0x1.4ae0c0p-26f)
static const lanes_f32 POW_INVERSE_F32[2] = {{1.0f, 0.953125f, 0.921875f, 0.90625f, 0.875f, 0.859375f, 0.828125f, 0.8125f, 0.796875f, 0.765625f, 0.75f, 0.734375f, 0.71875f, 0.703125f, 0.6875f, 0.671875f},
{0.65625f, 0.640625f, 0.640625f, 0.625f, 0.609375f, 0.59375f, 0.59375f, 0.578125f, 0.5625f, 0.5625f, 0.546875f, 0.53125f, 0.53125f, 0.515625f, 0.515625f, 0.5f}};
static const lanes_f32 POW_LOG_HIGH_F32[2] = {{0.0f, 0.0692749023f, 0.117370605f, 0.142028809f, 0.192626953f, 0.21862793f, 0.272094727f, 0.299560547f, 0.327575684f, 0.385314941f, 0.415039062f, 0.44543457f, 0.47644043f, 0.508117676f, 0.540588379f, 0.573730469f},
{0.607666016f, 0.642456055f, 0.642456055f, 0.678100586f, 0.714599609f, 0.752075195f, 0.752075195f, 0.790527344f, 0.830078125f, 0.830078125f, 0.870727539f, 0.912536621f, 0.912536621f, 0.955627441f, 0.955627441f, 1.0f}};
static const lanes_f32 POW_LOG_LOW_F32[2] = {{0.0f, -1.22399069e-05f, -1.36548306e-05f, -9.8037217e-06f, 1.81248179e-05f, 1.23567879e-05f, -1.51811255e-05f, -2.65016098e-07f, -1.02556521e-06f, -2.47855223e-05f, -1.56322119e-06f, -2.34219897e-05f, -2.38574444e-06f, 2.92278892e-05f, -1.99975439e-05f, 4.77654794e-06f},
{1.65615966e-05f, -8.0593054e-06f, -8.0593054e-06f, -2.86808245e-05f, -1.82823726e-06f, -2.70875603e-06f, -2.70875603e-06f, 1.92906209e-05f, -3.12644238e-06f, -3.12644238e-06f, -1.05560075e-05f, 5.37655922e-07f, 5.37655922e-07f, -2.15607652e-05f, -2.15607652e-05f, 0.0f}};

HIDDEN lanes_f32 _ZGVeN16vv_pow_lanes_f32(lanes_f32 a, lanes_f32 y) {
  const lanes_f32 zero = {0};
  const lanes_f32 k = __builtin_ia32_getexpps512_mask(a, zero, -1, 4), m = __builtin_ia32_getmantps512_mask(a, 0, zero, -1, 4);
  const bits_of_lanes_f32 layer = (bits_of_lanes_f32)m >> 18;
  const lanes_f32 r = FUSED(m, __builtin_shuffle(POW_INVERSE_F32[0], POW_INVERSE_F32[1], layer), LANES(-1));

  const lanes_f32 first = r * LOG2E, first_low = FUSED(r, LOG2E_REST, FUSED(r, LOG2E, -first));
  const lanes_f32 square = r * r, square_low = FUSED(r, r, -square), half = LOG2E * LANES(-0.5f), second = square * half;
  const lanes_f32 second_low = FUSED(square_low, half, FUSED(square, LOG2E_REST * LANES(-0.5f), FUSED(square, half, -second)));
  lanes_f32 p = FUSED(LANES(-2.40754261e-01f), r, LANES(2.88818647e-01f));
  p = FUSED(p, r, LANES(-3.60673634e-01f));
  p = FUSED(p, r, LANES(4.80898263e-01f));
  const lanes_f32 low_of_table = __builtin_shuffle(POW_LOG_LOW_F32[0], POW_LOG_LOW_F32[1], layer);
  const lanes_f32 part = first + second, part_low = ((first - part) + second) + (FUSED(square * r, p, second_low + first_low) + low_of_table);

  const lanes_f32 whole = k + __builtin_shuffle(POW_LOG_HIGH_F32[0], POW_LOG_HIGH_F32[1], layer), sum = whole + part;
  const lanes_f32 rest = WHERE(k - k == 0, ((whole - sum) + part) + part_low), high = sum + rest, low = (sum - high) + rest;
  const lanes_f32 power = WHERE(high != 0, y), e = power * high, e_low = FUSED(power, low, FUSED(power, high, -e));

  const lanes_f32 c = __builtin_ia32_minps512_mask(LANES(200), __builtin_ia32_maxps512_mask(LANES(-200), e, zero, -1, 4), zero, -1, 4);
  const lanes_f32 n = __builtin_ia32_rndscaleps_mask(c, 8, zero, -1, 4), x = (c - n) + WHERE(c == e, e_low);
  lanes_f32 q = FUSED(LANES(1.53531844e-04f), x, LANES(1.33993698e-03f));
  q = FUSED(q, x, LANES(9.61844157e-03f));
  q = FUSED(q, x, LANES(5.55033125e-02f));
  q = FUSED(q, x, LANES(2.40226477e-01f));
  q = FUSED(q, x, LANES(6.93147182e-01f));
  return __builtin_ia32_scalefps512_mask(FUSED(q, x, LANES(1)), n, zero, -1, 4);
}

HIDDEN float pow_lanes_f32_scalar(float a, float y) __asm__("pow_lanes_f32");
HIDDEN float pow_lanes_f32_scalar(float a, float y) { return _ZGVeN16vv_pow_lanes_f32(LANES(a), LANES(y))[0]; }
#undef LANES
#undef FUSED
#undef WHERE
#undef LOG2E
#undef LOG2E_REST

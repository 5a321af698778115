// What every function needs, once for float and once for double: `real` is the type, `word` an unsigned integer of its
// size, w a suffix of functions and literals. MAGIC is 1.5·2^(digits - 1): a number of less than a quarter of that, added to it,
// is rounded to an integer, which the sum's lowest bits hold. No statement branches, so that every loop is vectorised.

inline word bits_w(real x) { union { real f; word i; } u = { x }; return u.i; }

inline real from_bits_w(word x) { union { word i; real f; } u = { x }; return u.f; }

inline real size_w(real x) { return __builtin_fabs@(x); }

// a·b + c, rounded once or twice, as is faster.
inline real mad_w(real a, real b, real c) {
#ifdef FAST_FMA
  return __builtin_fma@(a, b, c);
#else
  return a * b + c;
#endif
}

inline _Bool negative_w(real x) { return bits_w(x) >> (WIDTH - 1) != 0; }

inline real signed_w(real size, real sign) { return __builtin_copysign@(size, sign); }

// y·2^n for √½ ≤ y < √2 or so, given n + MAGIC for an integer n, and whether the result is below the normal range: n is added to
// the exponent's bits. Processors take a hundred times as long for a product below that range, and masks of scores and tails of
// densities are made of such numbers: there y is scaled 2^LOWEST times as high, and the sum that rounds it to an integer is the
// result's bits.
inline real scaled_w(real y, real n, _Bool low) {
  const real p = from_bits_w(bits_w(y) + (bits_w(n) + (low ? LOWEST : 0) << DIGITS));
  return low ? from_bits_w(bits_w(p + TWO_DIGITS) - TWO_DIGITS_BITS) : p;
}

// 2^n for an integer n whose power is a normal number.
inline real power_of_two_w(real n) { return from_bits_w(bits_w(n + (MAGIC + BIAS.0w)) << DIGITS); }

// r of x = n·log 2 + r, |r| ≤ log(2) / 2 (Cody and Waite), and n + MAGIC.
inline real exp_rest_w(real x, real *n) {
  *n = mad_w(x, 1.4426950408889634w, MAGIC);
  return fused_w(*n - MAGIC, -LN2_LOW, fused_w(*n - MAGIC, -LN2_HIGH, x));
}

// exp(r) - 1 for |r| ≤ log(2) / 2.
inline real exp_core_w(real r) { return mad_w(r * r, exp_tail_w(r), r); }

// exp(x + low) for an x below where exp overflows and a low far below x.
inline real exp_sum_w(real x, real low) {
  real n;
  const real r = exp_rest_w(x < EXP_LOW ? EXP_LOW : x, &n);
  return scaled_w(exp_core_w(r + low) + 1, n, x < EXP_LEAST);
}

// An exponential's result r where x ≤ most; infinity and nan elsewhere.
inline real exp_edge_w(real x, real most, real r) { return x <= most ? r : x + __builtin_inf@(); }

inline real exp_w(real x) {
  real n;
  const real r = exp_rest_w(x < EXP_LOW ? EXP_LOW : x, &n);
  return exp_edge_w(x, EXP_MOST, scaled_w(exp_core_w(r) + 1, n, x < EXP_LEAST));
}

// exp(x) where x ≤ 0, or nan, which a product keeps and a sum of exponents would not. AMD's processors take no longer for products
// below the normal range: there a product with 2^-64 rounds.
inline real exp_unchecked_w(real x) {
#if defined(__znver1__) || defined(__znver2__) || defined(__znver3__) || defined(__znver4__) || defined(__znver5__)
  const real c = x < EXP_LOW ? EXP_LOW : x, n = mad_w(c, 1.4426950408889634w, MAGIC + BIAS.0w + 64), k = n - (MAGIC + BIAS.0w + 64);
  const real r = fused_w(k, -LN2_LOW, fused_w(k, -LN2_HIGH, c));
  return (exp_core_w(r) + 1) * from_bits_w(bits_w(n) << DIGITS) * 0x1p-64w;
#else
  const _Bool low = x < EXP_LEAST;
  const real c = x < EXP_LOW ? EXP_LOW : x, n = mad_w(c, 1.4426950408889634w, MAGIC + BIAS.0w), k = n - (MAGIC + BIAS.0w);
  const real r = fused_w(k, -LN2_LOW, fused_w(k, -LN2_HIGH, c));
  const real p = (exp_core_w(r) + 1) * from_bits_w(bits_w(n) + (low ? LOWEST : 0) << DIGITS);
  return low ? from_bits_w(bits_w(p + TWO_DIGITS) - TWO_DIGITS_BITS) : p;
#endif
}

inline real exp2_w(real x) {
  const real c = x < EXP2_LOW ? EXP2_LOW : x, n = c + MAGIC;
  const real r = scaled_w(exp_core_w((c - (n - MAGIC)) * 0.6931471805599453w) + 1, n, x < 1 - BIAS.0w);
  return exp_edge_w(x, EXP2_MOST, r);
}

// 2^n / 4 of n + MAGIC, for n from -60 or so.
inline real quarter_w(real n) { return from_bits_w(bits_w(n) + (BIAS - 2) << DIGITS); }

// (exp(x) - 1) / 4, for x from -60 (-18 for float) to where sinh overflows.
inline real quarter_expm1_w(real x) {
  real n;
  const real p = exp_core_w(exp_rest_w(x, &n)), power = quarter_w(n);
  return mad_w(power, p, power - 0.25w);
}

inline real expm1_w(real x) {
  const real c = x < EXPM1_LOW ? EXPM1_LOW : x > EXP_HIGH ? EXP_HIGH : x;
  return size_w(x) < EPSILON ? x : quarter_expm1_w(c) * 4;
}

// -e / (2 + e) for e = exp(-2a) - 1, of a = s - n·log(2) / 2, |s| ≤ log(2) / 4: exp(-2s) - 1 is -2h, and `power` -2·2^n.
inline real tanh_w(real x) {
  const real a = size_w(x), c = a > 20.0w ? 20.0w : a;
  const real n = mad_w(c, -2.8853900817779268w, MAGIC), s = fused_w(n - MAGIC, LN2_HIGH / 2, c);
  const real h = mad_w(s * s, tanh_tail_w(s), s), power = from_bits_w((bits_w(n) << DIGITS) + MINUS_TWO);
  const real e = mad_w(power, h, mad_w(power, -0.5w, -1.0w));
  return signed_w(e / (-2.0w - e), x);
}

inline real sinh_w(real x) {
  const real a = size_w(x), e = quarter_expm1_w(a > SINH_HIGH ? SINH_HIGH : a);
  return a < EPSILON ? x : signed_w((e + e / (4.0w * e + 1.0w)) * 2, x);
}

inline real cosh_w(real x) {
  const real a = size_w(x);
  real n;
  const real p = exp_core_w(exp_rest_w(a > SINH_HIGH ? SINH_HIGH : a, &n)), power = quarter_w(n);
  const real e = mad_w(power, p, power);
  return e * 2 + 0.125w / (e > HUGE_SUM ? HUGE_SUM : e);
}

// f of x = 2^k·(1 + f), √½ ≤ 1 + f < √2, for a normal number x, and k.
inline real log_normal_w(real x, real *k) {
  const word i = bits_w(x) + (ONE - ROOT_HALF);
  *k = from_bits_w(i >> DIGITS | TWO_DIGITS_BITS) - (TWO_DIGITS + BIAS.0w);
  return from_bits_w((i & MANTISSA) + ROOT_HALF) - 1;
}

// The same for 0 < x < inf.
inline real log_split_w(real x, real *k) {
  const _Bool low = x < SMALLEST;
  const word i = bits_w(low ? x * LIFT : x) + (ONE - ROOT_HALF);
  *k = from_bits_w(i >> DIGITS | TWO_DIGITS_BITS) - (low ? TWO_DIGITS + BIAS.0w + LIFTED : TWO_DIGITS + BIAS.0w);
  return from_bits_w((i & MANTISSA) + ROOT_HALF) - 1;
}

// The exponent k of x, through which infinity and nan reach the sum that is a logarithm.
inline real log_exponent_w(real x, real k) { return x < __builtin_inf@() ? k : x; }

// A logarithm's result r where x > 0, and what holds elsewhere.
inline real log_edge_w(real x, real r) { return x <= 0 ? x == 0 ? -__builtin_inf@() : __builtin_nan@("") : r; }

inline real log_w(real x) {
  real k;
  const real f = log_split_w(x, &k);
  return log_edge_w(x, log_sum_w(f, log_exponent_w(x, k)));
}

inline real log2_w(real x) {
  real k;
  const real f = log_split_w(x, &k), l = log_sum_w(f, 0);
  return log_edge_w(x, mad_w(l, LOG2E_HIGH, mad_w(l, LOG2E_LOW, log_exponent_w(x, k))));
}

// The rounding error of 1 + x goes into f. Powers of small numbers would vanish.
inline real log1p_w(real x) {
  const _Bool small = size_w(x) < EPSILON;
  const real u = 1 + x, lost = x - (u - 1);
  real k;
  const real f = log_normal_w(u, &k), more = (x < HUGE_SUM) & !small ? lost * power_of_two_w(-k) : 0;
  const real r = log_edge_w(u, log_sum_w(f + more, log_exponent_w(u, k)));
  return small ? x : r;
}

inline real asinh_w(real x) {
  const real a = size_w(x), square = a * a, z = a + square / (1 + __builtin_sqrt@(1 + square));
  const real r = log1p_w(a > HUGE_SUM ? a : z);
  return signed_w(a > HUGE_SUM ? r + 0.6931471805599453w : r, x);
}

inline real acosh_w(real x) {
  const real t = x - 1, r = log1p_w(x > HUGE_SUM ? x : t + __builtin_sqrt@(t * (t + 2)));
  return x < 1 ? __builtin_nan@("") : x > HUGE_SUM ? r + 0.6931471805599453w : r;
}

inline real atanh_w(real x) {
  const real a = size_w(x);
  return signed_w(log1p_w(2 * a / (1 - a)) * 0.5w, x);
}

inline real asin_w(real x) {
  const real a = size_w(x), z = a > 0.5w ? (1 - a) * 0.5w : a * a, s = a > 0.5w ? __builtin_sqrt@(z) : a;
  const real p = mad_w(s * z, asin_tail_w(z), s);
  return signed_w(a > 0.5w ? PI_HALF_HIGH - (2 * p - PI_HALF_LOW) : p, x);
}

inline real acos_w(real x) {
  const real a = size_w(x), z = a > 0.5w ? (1 - a) * 0.5w : a * a, s = a > 0.5w ? __builtin_sqrt@(z) : a;
  const real p = mad_w(s * z, asin_tail_w(z), s);
  const real beside = PI_HALF_HIGH - ((x > 0 ? p : -p) - PI_HALF_LOW), edge = PI_HALF_HIGH - (p - PI_HALF_LOW);
  return a > 0.5w ? (x > 0 ? p : edge) * 2 : beside;
}

inline real atan_core_w(real t) { return mad_w(t * (t * t), atan_tail_w(t * t), t); }

inline real atan_w(real x) {
  const real a = size_w(x), p = atan_core_w(a > 1 ? 1 / a : a);
  return signed_w(a > 1 ? PI_HALF_HIGH - (p - PI_HALF_LOW) : p, x);
}

inline real atan2_w(real y, real x) {
  const real a = size_w(y), b = size_w(x), low = a > b ? b : a, high = a > b ? a : b;
  const real t = high == 0 ? 0 : low == high ? 1 : low / high, p = atan_core_w(low != low ? low : t);
  const real q = a > b ? PI_HALF_HIGH - (p - PI_HALF_LOW) : p;
  return signed_w(negative_w(x) ? 2 * PI_HALF_HIGH - (q - 2 * PI_HALF_LOW) : q, y);
}

// erfc(a) for 0 ≤ a: exp(-a²)·P(q) / (1 + 2a) with q = (a - K) / (a + K), K = ERFC_POLE (after Shepherd and Laframboise, 1981).
inline real erfc_core_w(real size) {
  const real a = size > ERFC_HIGH ? ERFC_HIGH : size, square = a * a, lost = fused_w(a, a, -square);
  const real over = 1 + 2 * a, below = a + ERFC_POLE, inverse = 1 / (over * below), quotient = below * inverse;
  const real p = erfc_tail_w((a - ERFC_POLE) * (over * inverse)), near = p * quotient;
  return exp_sum_w(-square, -lost) * mad_w(fused_w(-near, over, p), quotient, near);
}

inline real erfc_w(real x) {
  const real a = size_w(x), r = erfc_core_w(a), near = 1 - x * erf_centre_w(a < 0.5w ? a * a : 0);
  return a < 0.5w ? near : x < 0 ? 2 - r : r;
}

inline real erf_w(real x) {
  const real a = size_w(x), near = x * erf_centre_w(a < 1 ? a * a : 1);
  return a < 1 ? near : signed_w(1 - erf_rest_w(a > ERF_HIGH ? ERF_HIGH : a), x);
}

// A quartic near the root's inverse, Householder's step for inverses, which divides nothing, and Newton's for the root.
inline real cbrt_w(real x) {
  const real a = size_w(x);
  real k;
  const real f = log_split_w(a, &k), t = mad_w(k, 0.33333333333333333w, MAGIC), rest = mad_w(t - MAGIC, -3.0w, k);
  const real guess = mad_w(mad_w(mad_w(mad_w(0.12836940586566925w, f, -0.188909009w), f, 0.22436268627w), f, -0.332901597w), f, 0.99997657537w);
  const real m = (1 + f) * (rest < 0 ? 0.5w : rest > 0 ? 2.0w : 1.0w);
  real z = guess * (rest < 0 ? 1.2599210498948732w : rest > 0 ? 0.7937005259840998w : 1.0w);
  const real e = fused_w(-(z * z), m * z, 1);
  z = mad_w(z * e, WIDTH == 64 ? mad_w(e, 0.2222222222222222w, 0.33333333333333333w) : 0.33333333333333333w, z);
  const real square = z * z, y = m * square;
  const real r = mad_w(fused_w(-(y * y), y, m), square * 0.33333333333333333w, y);
  return (a > 0) & (a < __builtin_inf@()) ? signed_w(from_bits_w(bits_w(r) + (bits_w(t) << DIGITS)), x) : x;
}

inline real pow_w(real x, real y) {
  const real whole = __builtin_trunc@(y), half = y * 0.5w;
  const real size = pow_core_w(size_w(x), y);
  const _Bool odd = (whole == y) & (__builtin_trunc@(half) != half);
  real r = odd & negative_w(x) ? -size : size;
  r = (x < 0) & (x > -__builtin_inf@()) & (whole != y) ? __builtin_nan@("") : r;
  r = x != x ? x : r;
  r = y != y ? y : r;
  r = y == 0 ? 1 : r;
  return x == 1 ? 1 : r;
}

// r + low of x = n·π/2 + r + low, |r| ≤ π/4, and n (Cody and Waite); for sizes up to FAR.
inline real quarters_w(real x, real *low, word *quarter) {
  const real t = mad_w(x, 0.6366197723675814w, MAGIC), n = t - MAGIC;
  const real first = fused_w(n, -PI_HALF_HIGH, x), product = n * PI_HALF_LOW, second = first - product;
  *low = fused_w(n, -PI_HALF_LEAST, ((first - second) - product) - fused_w(n, PI_HALF_LOW, -product));
  *quarter = bits_w(t);
  return second;
}

// The sine of a quarter's argument, or the cosine, by the number of the quarter.
inline real sine_w(real r, real low, word quarter) {
  const real z = r * r, s = r + mad_w(r * z, sin_tail_w(z), low), half = 0.5w * z;
  const real c = 1 - (half - mad_w(z * z, cos_tail_w(z), -r * low));
  return from_bits_w(bits_w(quarter & 1 ? c : s) ^ quarter >> 1 << (WIDTH - 1));
}

inline real sin_w(real x) {
  real low;
  word quarter;
  const real r = quarters_w(x, &low, &quarter);
  return sin_far_w(x, x == 0 ? x : sine_w(r, low, quarter));
}

inline real cos_w(real x) {
  real low;
  word quarter;
  const real r = quarters_w(x, &low, &quarter);
  return cos_far_w(x, sine_w(r, low, quarter + 1));
}

inline real tan_w(real x) {
  real low;
  word quarter;
  const real r = quarters_w(x, &low, &quarter);
  const real s = sine_w(r, low, 0), c = sine_w(r, low, 1), t = quarter & 1 ? -c / s : s / c;
  return tan_far_w(x, x == 0 ? x : t);
}

// sin(π·x) for |x| ≤ 1/2.
inline real sinpi_w(real x) { return x * sinpi_tail_w(x * x); }

// log|Γ(x)|: a polynomial on [5/4, 5/2) and a logarithm, Stirling's series from 8 on, reflection below 0.
inline real lgamma_w(real x) {
  const real a = size_w(x);
  real y = a, product = 1;
#define LOWERED product = (a < 8) & (y >= 2.5w) ? product * (y - 1) : product, y = (a < 8) & (y >= 2.5w) ? y - 1 : y;
  LOWERED LOWERED LOWERED LOWERED LOWERED LOWERED
  const real t = a < 0.5w ? a : a < 1.25w ? a - 1 : y - 2;
  const real l = log_w(a < 0.5w ? a * (1 + a) : (a < 1.25w) | (a >= 8) ? a : product);
  const real near = mad_w(t, lgamma_tail_w(t), a < 1.25w ? -l : l);
  const real i = 1 / a, far = mad_w(a - 0.5w, l - 1, mad_w(i, stirling_tail_w(i * i), 0.41893853320467274w));
  const real right = a < 8 ? near : a < __builtin_inf@() ? far : a;
  const real beside = a - __builtin_rint@(a);
  const real left = log_w(3.141592653589793w / (a * size_w(sinpi_w(beside)))) - right;
  return x < 0 ? (a < SMALL_GAMMA ? right : (beside != 0) & (a < __builtin_inf@()) ? left : __builtin_inf@()) : right;
}

inline real nextafter_w(real x, real y) {
  const word i = bits_w(x), away = i + 1, back = i - 1, least = (word)1 | (bits_w(y) & (word)1 << (WIDTH - 1));
  const real moved = from_bits_w(x == 0 ? least : (y > x) == (x > 0) ? away : back);
  return (x != x) | (y != y) ? x + y : x == y ? y : moved;
}

// The remainder of a division whose quotient is cut off: exact, as x less an integer times y fits where the integer does. The
// quotient, rounded, may be one too large.
inline real rem_w(real x, real y) {
#ifdef FAST_FMA
  const real a = size_w(x), b = size_w(y), n = __builtin_trunc@(a / b), r = __builtin_fma@(-n, b, a), least = r < 0 ? r + b : r;
  return rem_far_w(x, y, signed_w(n < TWO_DIGITS ? least : __builtin_nan@(""), x));
#else
  return rem_far_w(x, y, __builtin_nan@(""));
#endif
}

// a^y for a ≥ 0, 8 doubles at once, as pow_float32_avx512.h has it, whose high numbers in the table have 40 bits here. Within 1.2 ulp.
// Polynomials interpolate at Chebyshev's points, by steps in the square, two coefficients each.
typedef double lanes_f64 __attribute__((vector_size(64)));
typedef long long bits_of_lanes_f64 __attribute__((vector_size(64)));
#define LANES(x) ((lanes_f64){x, x, x, x, x, x, x, x})
#define FUSED(a, b, c) __builtin_ia32_vfmaddpd512_mask(a, b, c, -1, 4)
#define WHERE(test, x) ((lanes_f64)((bits_of_lanes_f64)(x) & (test)))
#define LOG2E LANES(0x1.71547652b82fep+0)
#define LOG2E_REST LANES(0x1.777d0ffda0d24p-56)
static const lanes_f64 POW_INVERSE_F64[4] = {{1.0, 0.953125, 0.921875, 0.90625, 0.875, 0.859375, 0.828125, 0.8125},
{0.796875, 0.765625, 0.75, 0.734375, 0.71875, 0.703125, 0.6875, 0.671875},
{0.65625, 0.640625, 0.640625, 0.625, 0.609375, 0.59375, 0.59375, 0.578125},
{0.5625, 0.5625, 0.546875, 0.53125, 0.53125, 0.515625, 0.515625, 0.5}};
static const lanes_f64 POW_LOG_HIGH_F64[4] = {{0.0, 0.06926266243681312, 0.1173569506381682, 0.1420190048720542, 0.19264507794196106, 0.21864028647542, 0.2720795454370091, 0.29956028185915784},
{0.3275746580284249, 0.3852901558848316, 0.4150374992786965, 0.4454111483219094, 0.47643804394283507, 0.508146903670422, 0.5405683813623909, 0.5737352452979394},
{0.607682577221567, 0.6424479953820992, 0.6424479953820992, 0.6780719051130291, 0.7145977811378543, 0.7520724865562443, 0.7520724865562443, 0.7905466343709122},
{0.830074998557393, 0.830074998557393, 0.8707169830549901, 0.9125371587497284, 0.9125371587497284, 0.9556058806419969, 0.9556058806419969, 1.0}};
static const lanes_f64 POW_LOG_LOW_F64[4] = {{0.0, 3.0060745418937855e-13, -9.459192232399996e-15, 3.736684162192024e-13, 4.348299516065895e-13, -7.960223862778872e-14, -2.0825307466611057e-13, -2.500001867992647e-13},
{7.951818330761124e-14, -3.983479855974919e-14, 1.4733181985781966e-13, 4.532053086411405e-13, 1.520621696507556e-13, -9.67451159139632e-14, 3.1180651700181383e-13, -3.733907276649932e-14},
{-3.273329303085191e-13, -1.82872716976671e-13, -1.82872716976671e-13, -3.914087556296025e-13, -1.02668366941445e-13, 1.7024883460791358e-13, 1.7024883460791358e-13, 1.3800246976244608e-13},
{2.9466363971563933e-13, 2.9466363971563933e-13, 4.3421195976986995e-14, -6.781363655020842e-14, -6.781363655020842e-14, -4.5035636491329477e-13, -4.5035636491329477e-13, 0.0}};

// The numbers of a table of 32.
static inline __attribute__((always_inline)) lanes_f64 looked_up(const lanes_f64 *table, bits_of_lanes_f64 layer) {
  const lanes_f64 below = __builtin_shuffle(table[0], table[1], layer), above = __builtin_shuffle(table[2], table[3], layer);
  return (lanes_f64)__builtin_ia32_blendmpd_512_mask(below, above, __builtin_ia32_cvtq2mask512(layer << 59));
}

HIDDEN lanes_f64 _ZGVeN8vv_pow_lanes_f64(lanes_f64 a, lanes_f64 y) {
  const lanes_f64 zero = {0};
  const lanes_f64 k = __builtin_ia32_getexppd512_mask(a, zero, -1, 4), m = __builtin_ia32_getmantpd512_mask(a, 0, zero, -1, 4);
  const bits_of_lanes_f64 layer = (bits_of_lanes_f64)m >> 47;
  const lanes_f64 r = FUSED(m, looked_up(POW_INVERSE_F64, layer), LANES(-1));

  const lanes_f64 first = r * LOG2E, first_low = FUSED(r, LOG2E_REST, FUSED(r, LOG2E, -first));
  const lanes_f64 square = r * r, square_low = FUSED(r, r, -square), half = LOG2E * LANES(-0.5), second = square * half;
  const lanes_f64 second_low = FUSED(square_low, half, FUSED(square, LOG2E_REST * LANES(-0.5), FUSED(square, half, -second)));
  lanes_f64 p = FUSED(LANES(-0.12047652253842099), r, LANES(0.1314254065103166));
  p = FUSED(p, square, FUSED(LANES(-0.14426928871643258), r, LANES(0.16029921705213285)));
  p = FUSED(p, square, FUSED(LANES(-0.18033688018625127), r, LANES(0.20609929163647478)));
  p = FUSED(p, square, FUSED(LANES(-0.24044917348148473), r, LANES(0.28853900817778283)));
  p = FUSED(p, square, FUSED(LANES(-0.36067376022224085), r, LANES(0.4808983469629878)));
  const lanes_f64 part = first + second, part_low = ((first - part) + second) + (FUSED(square * r, p, second_low + first_low) + looked_up(POW_LOG_LOW_F64, layer));

  const lanes_f64 whole = k + looked_up(POW_LOG_HIGH_F64, layer), sum = whole + part;
  const lanes_f64 rest = WHERE(k - k == 0, ((whole - sum) + part) + part_low), high = sum + rest, low = (sum - high) + rest;
  const lanes_f64 power = WHERE(high != 0, y), e = power * high, e_low = FUSED(power, low, FUSED(power, high, -e));

  const lanes_f64 c = __builtin_ia32_minpd512_mask(LANES(1500), __builtin_ia32_maxpd512_mask(LANES(-1500), e, zero, -1, 4), zero, -1, 4);
  const lanes_f64 n = __builtin_ia32_rndscalepd_mask(c, 8, zero, -1, 4), x = (c - n) + WHERE(c == e, e_low), z = x * x;
  lanes_f64 q = LANES(4.4549605981865186e-10);
  q = FUSED(q, z, FUSED(LANES(7.072585949269223e-09), x, LANES(1.0178062445845774e-07)));
  q = FUSED(q, z, FUSED(LANES(1.321544258792169e-06), x, LANES(1.525273382983612e-05)));
  q = FUSED(q, z, FUSED(LANES(0.0001540353044173605), x, LANES(0.0013333558146416936)));
  q = FUSED(q, z, FUSED(LANES(0.009618129107606888), x, LANES(0.0555041086648216)));
  q = FUSED(q, z, FUSED(LANES(0.24022650695910097), x, LANES(0.6931471805599453)));
  return __builtin_ia32_scalefpd512_mask(FUSED(q, x, LANES(1)), n, zero, -1, 4);
}

HIDDEN double pow_lanes_f64_scalar(double a, double y) __asm__("pow_lanes_f64");
HIDDEN double pow_lanes_f64_scalar(double a, double y) { return _ZGVeN8vv_pow_lanes_f64(LANES(a), LANES(y))[0]; }
#undef LANES
#undef FUSED
#undef WHERE
#undef LOG2E
#undef LOG2E_REST

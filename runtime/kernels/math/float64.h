// What differs for double. Polynomials are minimax (Remez's algorithm in 45 digits), by relative error.

inline double fused_f64(double a, double b, double c) {
#ifdef FAST_FMA
  return __builtin_fma(a, b, c);
#else  // the product's rounding error by Dekker's algorithm, the sum's by Knuth's
  const double big_a = a * 0x1.0000002p27, head_a = big_a - (big_a - a), tail_a = a - head_a;
  const double big_b = b * 0x1.0000002p27, head_b = big_b - (big_b - b), tail_b = b - head_b;
  const double product = a * b, lost = ((head_a * head_b - product) + head_a * tail_b + tail_a * head_b) + tail_a * tail_b;
  const double sum = product + c, part = sum - product;
  return sum + (((product - (sum - part)) + (c - part)) + lost);
#endif
}

inline double exp_tail_f64(double r) {
  return POLY(r, 2.0875321424503143e-09, 2.5109271167271508e-08, 2.755740350385223e-07, 2.7557243603239355e-06, 2.480158717054116e-05, 0.0001984126988665803, 0.001388888888896389, 0.00833333333332145, 0.041666666666666505, 0.16666666666666677, 0.5);
}

// (h - s) / s² for h = (1 - exp(-2s)) / 2: exp_tail_f64's coefficients, scaled.
inline double tanh_tail_f64(double s) {
  return POLY(s, -4.275265827738244e-06, 2.5711893675286024e-05, -0.00014109390593972343, 0.0007054654362429275, -0.0031746031578292686, 0.01269841272746114, -0.04444444444468445, 0.1333333333331432, -0.33333333333333204, 0.6666666666666671, -1.0);
}

// k·log 2 + log(1 + f), after fdlibm's log (Sun Microsystems, 1993): log(1 + f) = f + s·(R(s²) - f), s = f / (2 + f).
inline double log_sum_f64(double f, double k) {
  const double s = f / (2 + f), z = s * s;
  const double p = POLY(z, 0.14795809107840063, 0.15314066600057774, 0.1818356361853173, 0.22222198588281455, 0.2857142874222855, 0.39999999999415425, 0.6666666666666734);
  return mad_f64(k, 0x1.62e42feep-1, f + mad_f64(s, mad_f64(z, p, -f), k * 0x1.a39ef35793c76p-33));
}

inline double asin_tail_f64(double z) {
  return POLY(z, 0.03195643157745567, -0.016289829443832157, 0.019570817298317552, 0.006512137658444073, 0.012172942198037709, 0.013884656681613544, 0.017359764429462722, 0.0223717540247527, 0.030381959307609223, 0.04464285682412821, 0.07500000000342162, 0.16666666666665386);
}

inline double atan_tail_f64(double z) {
  return POLY(z, -2.0661308478022885e-05, 0.00022683901626920322, -0.0011807235889025789, 0.0039003240437845772, -0.009265158286295884, 0.01708387895504961, -0.025930542512213967, 0.03414512437588231, -0.040970589799261596, 0.04675893223344119, -0.05239887378828973, 0.05877474762828338, -0.06665892109950013, 0.07692217310411134, -0.09090901657242187, 0.1111111070551066, -0.14285714272354458, 0.19999999999774834, -0.33333333333331994);
}

inline double erfc_tail_f64(double q) {
  return POLY(q, -9.5824048294126e-10, -6.2458173154953674e-09, -6.058803894047387e-09, 4.030514752708769e-08, 9.005341717586974e-08, -1.4276053051518027e-07, -6.056732688145319e-07, 3.594343799045852e-07, 3.465994086549152e-06, -7.334545551556767e-07, -2.0098110246846947e-05, 4.950288979604452e-06, 0.0001250987327694043, -0.00010515999894563186, -0.0007798321711916634, 0.0018886903885257586, 0.0025293918059472536, -0.023770514921071566, 0.06830802734454763, -0.11927366341520904, 0.12964515870274568, -0.047562294353452314, -0.13562110612458106, 1.2530080582697296);
}

inline double erf_rest_f64(double a) { return erfc_core_f64(a); }

inline double erf_centre_f64(double z) {
  return POLY(z, -7.801188874097751e-10, 1.3722976265924504e-08, -1.6209175911748696e-07, 1.6447517677871873e-06, -1.4924744663335489e-05, 0.00012055295320494294, -0.0008548325989696758, 0.005223977607423468, -0.02686617064327622, 0.11283791670945253, -0.3761263890318355, 1.1283791670955126);
}

// a^y for a ≥ 0: log(a) with 65 bits as a sum of two numbers, through s = (m - 1) / (m + 1), then exp.
inline double pow_portable_f64(double a, double y) {
  double k;
  const double f = log_split_f64(a, &k), m = 1 + f, below = 1 + m, below_low = m - (below - 1), inverse = 1 / below;
  const double s = f * inverse, s_low = (fused_f64(-s, below, f) - s * below_low) * inverse;
  const double z = s * s, z_low = fused_f64(s, s, -z) + 2 * s * s_low;
  const double u = z * POLY(z, 0.0598812494823717, 0.058382542665985, 0.06668112289467153, 0.07692279799750565, 0.09090909412143734, 0.1111111110898917, 0.14285714285721451, 0.1999999999999999);
  const double c = 0x1.5555555555555p-2 + u, c_low = (0x1.5555555555555p-2 - c) + u + 0x1.5555555555555p-56;
  const double v = z * c, v_low = fused_f64(z, c, -v) + (z * c_low + z_low * c);
  const double w = s * v, w_low = fused_f64(s, v, -w) + (s * v_low + s_low * v);
  const double half = s + w, half_low = (s - half) + w + (s_low + w_low);
  const double twos = k * 0x1.62e42fefa0000p-1, sum = twos + 2 * half;
  const double sum_low = (twos - sum) + 2 * half + (2 * half_low + k * 0x1.cf79abc9e3b3ap-40);
  const double high = sum + sum_low, low = (sum - high) + sum_low;
  const double l = a == 0 ? -__builtin_inf() : a == __builtin_inf() ? a : high;
  const double e = l == 0 ? 0 : y * l, e_low = l == 0 ? 0 : fused_f64(y, high, -e) + y * low;
  double n;
  const double inside = e < EXP_LOW ? EXP_LOW : e > EXP_HIGH ? EXP_HIGH : e, r = exp_rest_f64(inside, &n);
  const double power = scaled_f64(exp_core_f64(r + (inside == e ? e_low : 0)) + 1, n, e < EXP_LEAST);
  return bits_f64(power) > bits_f64(__builtin_inf()) ? __builtin_inf() : power;
}

inline double sin_tail_f64(double z) {
  return POLY(z, 1.5890320955277497e-10, -2.505064805730435e-08, 2.7557313001715133e-06, -0.0001984126982786261, 0.00833333333332005, -0.16666666666666624);
}

inline double cos_tail_f64(double z) {
  return POLY(z, -1.1355206627940538e-11, 2.0875638850505163e-09, -2.7557313743139374e-07, 2.4801587287422522e-05, -0.001388888888887092, 0.04166666666666658);
}

inline double sinpi_tail_f64(double z) {
  return POLY(z, -2.228379233259951e-08, 7.948539939357833e-07, -2.1915250344134687e-05, 0.00046630278747001637, -0.0073704309437037105, 0.08214588661099369, -0.5992645293207869, 2.5501640398773455, -5.16771278004997, 3.141592653589793);
}

inline double lgamma_tail_f64(double t) {
  return POLY(t, -1.6297088033871773e-07, -1.2155829964806616e-07, -3.112947506946969e-08, 4.078759096370989e-07, -4.2196762024970093e-07, 8.642802378192986e-07, -2.069695676508009e-06, 4.397182355824258e-06, -9.429185332165202e-06, 2.0504077703838717e-05, -4.4928045110831385e-05, 9.94577655471172e-05, -0.00022315457907762584, 0.0005096695136270886, -0.0011927539215661365, 0.0028905103309797724, -0.007385551028403073, 0.020580808427782486, -0.06735230105320096, 0.3224670334241132, 0.42278433509846713);
}

inline double stirling_tail_f64(double z) {
  return POLY(z, 0.0064102564102564100, -0.0019175269175269176, 0.00084175084175084175, -0.00059523809523809524, 0.00079365079365079365, -0.0027777777777777778, 0.083333333333333333);
}

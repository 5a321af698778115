// What differs for float. Polynomials are minimax (Remez's algorithm in 45 digits), by relative error.

inline float fused_f32(float a, float b, float c) {
#ifdef FAST_FMA
  return __builtin_fmaf(a, b, c);
#else
  return (float)((double)a * b + c);
#endif
}

inline float exp_tail_f32(float r) { return POLY(r, 1.9845582e-04, 1.394224e-03, 8.333394e-03, 4.166634e-02, 1.6666666e-01, 5e-01); }

// (h - s) / s² for h = (1 - exp(-2s)) / 2, |s| ≤ log(2) / 4, to a fifth of an ulp of h.
inline float tanh_tail_f32(float s) { return POLY(s, -4.4424079e-02, 1.3386433e-01, -3.333376e-01, 6.6666174e-01, -9.9999996e-01); }

// k·log 2 + log(1 + f).
inline float log_sum_f32(float f, float k) {
  const float square = f * f;
  const float p = POLY(f, -7.6345704e-02, 1.2761615e-01, -1.3160165e-01, 1.420175e-01, -1.6623358e-01, 2.0001228e-01, -2.500082e-01, 3.333333e-01);
  const float rest = mad_f32(k, 1.42860677e-06f, mad_f32(square * f, p, -0.5f * square));
  return mad_f32(k, 0.693145752f, f + rest);
}

inline float asin_tail_f32(float z) { return POLY(z, 4.2217225e-02, 2.4148582e-02, 4.547686e-02, 7.495244e-02, 1.6666754e-01); }

inline float atan_tail_f32(float z) {
  return POLY(z, 2.9754748e-03, -1.6585326e-02, 4.3561295e-02, -7.5813204e-02, 1.0679325e-01, -1.4214313e-01, 1.999415e-01, -3.3333167e-01);
}

inline float erfc_tail_f32(float q) {
  return POLY(q, 2.933578e-05, -3.606526e-04, -1.2555456e-03, 1.2693846e-03, 8.639038e-03, -8.043215e-03, -5.4205257e-02, 1.6405298e-01, -1.6603135e-01, -9.276389e-02, 1.2769784e+00);
}

// erfc(a) for 1 ≤ a ≤ 4, as far as erf needs it.
inline float erf_rest_f32(float a) {
  float n;
  const float l = POLY(a, 1.2997842e-04, -2.366237e-03, 1.9422619e-02, -9.791635e-02, -6.4424443e-01, -1.123364e+00, -1.267222e-03);
  const float p = exp_core_f32(exp_rest_f32(l, &n));
  return (p + 1) * (quarter_f32(n) * 4);
}

inline float erf_centre_f32(float z) {
  return POLY(z, 7.889119e-05, -8.0208457e-04, 5.1895366e-03, -2.6854446e-02, 1.12836e-01, -3.7612626e-01, 1.1283791e+00);
}

// a^y for a ≥ 0, in double.
inline float pow_portable_f32(float a, float y) {
  const uint64_t i = bits_f64((double)a) + (0x3ff0000000000000 - 0x3fe6a09e667f3bcd);
  const double k = from_bits_f64(i >> 52 | 0x4330000000000000) - (0x1p52 + 1023), m = from_bits_f64((i & 0xfffffffffffff) + 0x3fe6a09e667f3bcd);
  const double s = (m - 1) / (m + 1), z = s * s;
  const double l = mad_f64(s, POLY64(z, 0.2829081677454144, 0.3199051016652689, 0.4122092678670637, 0.5770779422002783, 0.9617966941139549, 2.8853900817778495), k);
  const double whole = a == 0 ? -__builtin_inf() : a == __builtin_inff() ? __builtin_inf() : l, exponent = whole == 0 ? 0 : whole * y;
  const double c = exponent < -200 ? -200 : exponent > 200 ? 200 : exponent, n = c + 0x1.8p52 - 0x1.8p52, r = c - n;
  const double p = POLY64(r, 0.00015478019256381966, 0.0013400436153155554, 0.009617994527387036, 0.055503272017481, 0.24022651504901707, 0.6931472067184072, 0.9999999999190965);
  const double e = p * power_of_two_f64(n);
  return e < 0x1p-126 ? from_bits_f32((uint32_t)bits_f64(mad_f64(e, 0x1p149, 0x1p52))) : (float)(e < 0x1p-126 ? 0 : e);
}

inline float sin_tail_f32(float z) { return POLY(z, -1.9504312e-04, 8.332083e-03, -1.6666654e-01); }

inline float cos_tail_f32(float z) { return POLY(z, 2.4423924e-05, -1.3887243e-03, 4.1666646e-02); }

inline float sinpi_tail_f32(float z) { return POLY(z, -7.028469e-03, 8.205045e-02, -5.992522e-01, 2.5501633e+00, -5.1677127e+00, 3.1415927e+00); }

inline float lgamma_tail_f32(float t) {
  return POLY(t, -1.2213699e-04, 8.0233905e-05, -1.7821985e-04, 5.262427e-04, -1.2024294e-03, 2.8868765e-03, -7.384654e-03, 2.0581087e-02, -6.735233e-02, 3.2246703e-01, 4.2278433e-01);
}

inline float stirling_tail_f32(float z) { return POLY(z, 7.9365079e-04, -2.7777778e-03, 8.3333333e-02); }

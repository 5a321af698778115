// a^y for a ≥ 0, a vector at once, with what AVX-512 has and compilers do not make of scalar code: exponents and mantissas taken
// apart, tables in registers, powers of two that overflow and underflow by themselves.
//
// log2(a) = k + log2(1 / i) + log2(1 + r), where a = 2^k·m, i of 6 bits is near 1 / m and r = m·i - 1 is exact, |r| ≤ 1/32. What decides is
// kept as sums of two numbers: the first two terms of log2(1 + r), their sum with the table's numbers, of which the high ones have
// so few bits that k adds to them exactly, and the product with y. Tables and polynomials are those of pow_float32_avx512.h or
// pow_float64_avx512.h, which stands before this.
HIDDEN lanes_w ENTRY(lanes_w a, lanes_w y) {
  const lanes_w zero = {0};
  const lanes_w k = OF_WIDTH(getexp)(a, zero, -1, 4), m = OF_WIDTH(getmant)(a, 0, zero, -1, 4);
  const bits_of_lanes_w layer = (bits_of_lanes_w)m >> LAYER;
  const lanes_w r = FUSED(m, looked_up_w(inverse_w, layer), LANES(-1));

  const lanes_w first = r * LOG2E, first_low = FUSED(r, LOG2E_REST, FUSED(r, LOG2E, -first));
  const lanes_w square = r * r, square_low = FUSED(r, r, -square), half = LOG2E * LANES(-0.5f), second = square * half;
  const lanes_w second_low = FUSED(square_low, half, FUSED(square, LOG2E_REST * LANES(-0.5f), FUSED(square, half, -second)));
  const lanes_w third = FUSED(square * r, log_part_w(r, square), second_low + first_low);
  const lanes_w part = first + second, part_low = ((first - part) + second) + (third + looked_up_w(log_low_w, layer));

  const lanes_w whole = k + looked_up_w(log_high_w, layer), sum = whole + part;
  const lanes_w rest = WHERE(k - k == 0, ((whole - sum) + part) + part_low), high = sum + rest, low = (sum - high) + rest;
  const lanes_w power = WHERE(high != 0, y), e = power * high, e_low = FUSED(power, low, FUSED(power, high, -e));

  const lanes_w c = OF_WIDTH(min)(FARTHEST, OF_WIDTH(max)(-FARTHEST, e, zero, -1, 4), zero, -1, 4);
  const lanes_w n = ROUNDED(c, 8, zero, -1, 4), x = (c - n) + WHERE(c == e, e_low);
  return OF_WIDTH(scalef)(FUSED(power_part_w(x), x, LANES(1)), n, zero, -1, 4);
}

HIDDEN REAL pow_scalar_w(REAL a, REAL y) __asm__("pow_lanes_w");
HIDDEN REAL pow_scalar_w(REAL a, REAL y) { return ENTRY(LANES(a), LANES(y))[0]; }

// incomplete(buffers, sizes): incomplete gamma and beta functions and their derivatives, element by element in double.
//
// The same formulas as in fuser/ops/incomplete.py, whose docstrings give the sources; a result of float's precision takes
// half of the nodes. buffers: the operands, the result. sizes: which function, elements, most threads, and for each operand
// the step from one element to the next. IN is a stored element, LOAD and SAVE convert it, SINGLE says that it has
// float's precision at most.
#include <math.h>
#include <omp.h>
#include <stdint.h>

enum { IGAMMA, IGAMMAC, IGAMMA_GRAD_A, RANDOM_GAMMA_GRAD, BETA };

#define SMOOTH 20.0      // from here on t^(a - 1) is smooth enough at 0 for quadrature
#define NEGLIGIBLE 40.0  // a tail ends where its integrand is exp(-40) of what it is at x
#define EPSILON 0x1p-52
#define TINY 1e-300
#define TWO_PI 6.283185307179586
#define MANY 512  // elements that are worth a team of threads
#define BLOCK 64  // elements between two looks at the clock

// Nodes and weights of Gauss–Legendre quadrature on [0, 1].
#if SINGLE
#define NODES 32
#define TERMS 21  // of the series in excess
static const double nodes[NODES] = {
    0.001368069075259215, 0.007194244227365809, 0.017618872206246805, 0.03254696203113017, 0.051839422116973954,
    0.07531619313371501, 0.10275810201602881, 0.13390894062985514, 0.16847786653489238, 0.20614212137961885,
    0.24655004553388532, 0.28932436193468236, 0.33406569885893617, 0.38035631887393145, 0.42776401920860174,
    0.4758461671561308, 0.5241538328438692, 0.5722359807913983, 0.6196436811260685, 0.6659343011410639,
    0.7106756380653176, 0.7534499544661146, 0.7938578786203812, 0.8315221334651076, 0.8660910593701449,
    0.8972418979839711, 0.924683806866285, 0.948160577883026, 0.9674530379688698, 0.9823811277937532,
    0.9928057557726342, 0.9986319309247408,
};
static const double weights[NODES] = {
    0.003509305004735253, 0.008137197365452872, 0.012696032654631012, 0.017136931456510882, 0.021417949011113418,
    0.025499029631188046, 0.029342046739267783, 0.03291111138818084, 0.03617289705442417, 0.039096947893535114,
    0.041655962113473353, 0.04382604650220189, 0.04558693934788189, 0.046922199540402255, 0.047819360039637354,
    0.04827004425736383, 0.04827004425736383, 0.047819360039637354, 0.046922199540402255, 0.04558693934788189,
    0.04382604650220189, 0.041655962113473353, 0.039096947893535114, 0.03617289705442417, 0.03291111138818084,
    0.029342046739267783, 0.025499029631188046, 0.021417949011113418, 0.017136931456510882, 0.012696032654631012,
    0.008137197365452872, 0.003509305004735253,
};
#else
#define NODES 64
#define TERMS 33
static const double nodes[NODES] = {
    0.0003474791321139148, 0.00182994161402239, 0.0044933142616278565, 0.008331873057687011, 0.013336586105044512,
    0.019495600173973116, 0.026794312570798617, 0.035215413934030215, 0.04473893146074859, 0.05534227700244293,
    0.06700030092295362, 0.07968535187370984, 0.09336734243860123, 0.10801382052832931, 0.12359004636973403,
    0.14005907491419456, 0.15738184347288336, 0.17551726437267134, 0.19442232241380336, 0.214052176898683,
    0.23436026799005272, 0.25529842714647355, 0.276816991373268, 0.2988649210180042, 0.3213899208311659,
    0.3443385640048945, 0.3676564188956163, 0.39128817812999644, 0.41517778978800357, 0.4392685903519397,
    0.4635034391061005, 0.48782485366828776, 0.5121751463317122, 0.5364965608938995, 0.5607314096480602,
    0.5848222102119964, 0.6087118218700035, 0.6323435811043837, 0.6556614359951055, 0.6786100791688341,
    0.7011350789819958, 0.723183008626732, 0.7447015728535265, 0.7656397320099473, 0.7859478231013171,
    0.8055776775861967, 0.8244827356273287, 0.8426181565271167, 0.8599409250858054, 0.876409953630266,
    0.8919861794716707, 0.9066326575613988, 0.9203146481262902, 0.9329996990770464, 0.944657722997557,
    0.9552610685392514, 0.9647845860659698, 0.9732056874292014, 0.9805043998260269, 0.9866634138949555,
    0.991668126942313, 0.9955066857383721, 0.9981700583859776, 0.9996525208678861,
};
static const double weights[NODES] = {
    0.00089164036084707, 0.0020735166302822496, 0.003252228984489251, 0.0044233799131816985, 0.005584069730065514,
    0.00673152394835893, 0.007863015238012515, 0.008975857887848642, 0.010067411576765044, 0.011135086904191484,
    0.0121763512843556, 0.013188734857527456, 0.014169836307129768, 0.015117328536201277, 0.016028964177425747,
    0.016902580918570897, 0.01773610662844115, 0.018527564270120044, 0.01927507658930782, 0.019976870566360272,
    0.020631281621311788, 0.021236757561826806, 0.021791862264661774, 0.022295279081878283, 0.022745813963709092,
    0.023142398290657236, 0.023484091408105038, 0.02377008285741521, 0.02399969429822921, 0.024172381117401498,
    0.024287733720751756, 0.024345478504569907, 0.024345478504569907, 0.024287733720751756, 0.024172381117401498,
    0.02399969429822921, 0.02377008285741521, 0.023484091408105038, 0.023142398290657236, 0.022745813963709092,
    0.022295279081878283, 0.021791862264661774, 0.021236757561826806, 0.020631281621311788, 0.019976870566360272,
    0.01927507658930782, 0.018527564270120044, 0.01773610662844115, 0.016902580918570897, 0.016028964177425747,
    0.015117328536201277, 0.014169836307129768, 0.013188734857527456, 0.0121763512843556, 0.011135086904191484,
    0.010067411576765044, 0.008975857887848642, 0.007863015238012515, 0.00673152394835893, 0.005584069730065514,
    0.0044233799131816985, 0.003252228984489251, 0.0020735166302822496, 0.00089164036084707,
};
#endif

// log Γ(z) - (z - 1/2)·log(z) + z - log(2π)/2 for z ≥ 9.
static double stirling(double z) {
  const double i = 1 / z, q = i * i;
  return i * ((((((q * (1.0 / 156) - 691.0 / 360360) * q + 1.0 / 1188) * q - 1.0 / 1680) * q + 1.0 / 1260) * q - 1.0 / 360) * q + 1.0 / 12);
}

// z - log(1 + z); `above` is 1 + z.
static double excess(double z, double above) {
  if (fabs(z) >= 0.5) return z - log(above);
  const double r = z / (2 + z), square = r * r;
  double series = 0;
  for (int k = TERMS; k > 1; k -= 2) series = series * square + 1.0 / k;
  return z * r - 2 * r * square * series;
}

// The positive solution of a·z² + b·z = c.
static double positive_root(double a, double b, double c) {
  const double root = sqrt(b * b + 4 * a * c);
  return b > 0 ? 2 * c / (b + root) : (root - b) / (2 * a);
}

static double reach(double curvature, double fall) {
  return positive_root(curvature + fall * (4.0 / 3), 2 * fall - NEGLIGIBLE * (4.0 / 3), 2 * NEGLIGIBLE);
}

// x^a·exp(-x) / Γ(a).
static double gamma_density(double a, double x) {
  if (a >= SMOOTH) return sqrt(a / TWO_PI) * exp(-a * excess((x - a) / a, x / a) - stirling(a));
  const double b = a + 10;
  double down = a;
  for (int k = 1; k < 10; ++k) down *= a + k;
  return down * exp(a * log(x) - x - ((b - 0.5) * log(b) - b + 0.5 * log(TWO_PI) + stirling(b)));
}

// log(x) - digamma(a).
static double log_minus_digamma(double a, double x) {
  double below = 0, b = a;
  if (a < SMOOTH)
    for (; b < 10; ++b) below += 1 / b;
  const double i = 1 / (b * b);
  const double beyond = 0.5 / b + i * (1.0 / 12 - i * (1.0 / 120 - i * (1.0 / 252 - i * (1.0 / 240 - i * (1.0 / 132 - i * (691.0 / 32760 - i / 12))))));
  return (fabs(x - b) < 0.5 * b ? log1p((x - b) / b) : log(x / b)) + beyond + below;
}

typedef struct {
  double ratio, slope;  // of an integral and of its derivative with respect to a, to the integrand at x
} tail;

static tail gamma_series(double a, double x, int derive) {
  double term = 1, total = 1, term_slope = 0, total_slope = 0, n = a;
  while (term > EPSILON / 8 * total || (derive && fabs(term_slope) > EPSILON / 8 * fabs(total_slope))) {
    const double factor = x / ++n;
    term_slope = term_slope * factor - term * factor / n;
    term *= factor;
    total += term;
    total_slope += term_slope;
  }
  return (tail){total / a, derive ? (total * (log_minus_digamma(a, x) - 1 / a) + total_slope) / a : 0};
}

static tail gamma_quadrature(double a, double x, int upper, int derive) {
  const double power = a - 1, rising = fmax(power, 0), downwards = positive_root(power / 2, power - x, NEGLIGIBLE);
  const double end = upper ? reach(rising, x - rising) : -(downwards < 1 ? downwards : 1);
  const double offset = derive ? log_minus_digamma(a, x) : 0;
  tail sum = {0, 0};
  for (int n = 0; n < NODES; ++n) {
    const double z = nodes[n] * end, share = weights[n] * exp(-(x - power) * z - power * excess(z, 1 + z));
    sum.ratio += share;
    if (derive) sum.slope += share * (log1p(z) + offset);
  }
  return (tail){sum.ratio * fabs(end), sum.slope * fabs(end)};
}

static tail gamma_tail(double a, double x, int upper, int derive) {
  return upper || a >= SMOOTH ? gamma_quadrature(a, x, upper, derive) : gamma_series(a, x, derive);
}

static double incomplete_gamma(double a, double x, int wanted_upper) {
  if (x < 0 || a < 0 || (a == 0 && x == 0) || isnan(a + x)) return NAN;
  if (isinf(x) || a == 0) return !wanted_upper;
  if (x == 0 || isinf(a)) return wanted_upper;
  const int upper = x > fmax(a, 1);
  const double value = gamma_density(a, x) * gamma_tail(a, x, upper, 0).ratio;
  return upper == wanted_upper ? value : 1 - value;
}

static double gamma_derivative(double a, double x, int of_sample) {
  if (isnan(a + x) || x < 0 || a <= 0) return NAN;
  if (x == 0) return 0;
  if (isinf(a) || isinf(x)) return of_sample ? NAN : 0;
  const int upper = x > fmax(a, 1);
  const double slope = gamma_tail(a, x, upper, 1).slope;
  return of_sample ? x * (upper ? slope : -slope) : gamma_density(a, x) * (upper ? -slope : slope);
}

// x^a·y^b / B(a, b).
static double beta_density(double a, double b, double x, double y) {
  const double up_a = a < 10 ? 10 : 0, up_b = b < 10 ? 10 : 0, p = a + up_a, q = b + up_b, both = p + q;
  const double beside = x < 0.5 ? x * both - p : q - y * both;
  const double log_x = x < 0.5 ? log(x) : log1p(-y), log_y = x < 0.5 ? log1p(-x) : log(y);
  double total = -p * excess(beside / p, x / p * both) - q * excess(-beside / q, y / q * both) - up_a * log_x - up_b * log_y;
  total += 0.5 * log(p / both * (q / TWO_PI)) + stirling(both) - stirling(p) - stirling(q);
  for (int k = 0; k < 10; ++k) total += (a < 10 ? log(a + k) : 0) + (b < 10 ? log(b + k) : 0);
  for (int k = 0; k < up_a + up_b; ++k) total -= log(a + b + k);
  return exp(total);
}

static double beta_quadrature(double a, double b, double x, double y) {
  const double odds = x / y, fall = (a - 1) - (b - 1) * odds;
  double end = fmin(positive_root((a - 1) / 2, fall, NEGLIGIBLE), reach(b - 1, fall / odds) / odds), ratio = 0;
  end = fmin(end, 1);
  for (int n = 0; n < NODES; ++n) {
    const double z = -nodes[n] * end, w = -odds * z;
    ratio += weights[n] * exp(fall * z - (a - 1) * excess(z, 1 + z) - (b - 1) * excess(w, 1 + w));
  }
  return ratio * end / y;
}

static double beta_fraction(double a, double b, double x) {
  double c = INFINITY, d = 1, value = 1;
  for (int n = 1; n < 2000; ++n) {
    const double m = n / 2;
    const double part = n % 2 ? -((a + m) / (a + 2 * m)) * (a + b + m) * (x / (a + 2 * m + 1))
                              : m * (b - m) / (a + 2 * m - 1) * (x / (a + 2 * m));
    c = 1 + part / c;
    d = 1 + part * d;
    if (c == 0) c = TINY;
    d = 1 / (d == 0 ? TINY : d);
    value *= c * d;
    if (fabs(c * d - 1) <= 2 * EPSILON) break;
  }
  return value / a;
}

static double incomplete_beta(double a, double b, double x) {
  const int no_a = a == 0 || b == INFINITY, no_b = b == 0 || a == INFINITY;
  if (a < 0 || b < 0 || x < 0 || x > 1 || (no_a && no_b) || isnan(a + b + x)) return NAN;
  if ((no_a && x != 0) || (no_b && x == 1) || x == 1) return 1;
  if (no_a || no_b || x == 0) return 0;
  const int lower = x < (a + 1) / (a + b + 2);
  const double p = lower ? a : b, q = lower ? b : a, near = lower ? x : 1 - x, far = lower ? 1 - x : x;
  const double ratio = fmin(a, b) >= SMOOTH ? beta_quadrature(p, q, near, far) : beta_fraction(p, q, near);
  const double value = beta_density(p, q, near, far) * ratio;
  return lower ? value : 1 - value;
}

static double computed(int64_t function, double a, double x, double third) {
  if (function == BETA) return incomplete_beta(a, x, third);
  return function <= IGAMMAC ? incomplete_gamma(a, x, function == IGAMMAC) : gamma_derivative(a, x, function == RANDOM_GAMMA_GRAD);
}

void incomplete(void **buffers, const int64_t *sizes) {
  const int64_t function = sizes[0], count = sizes[1], *steps = sizes + 3;
  const int operands = function == BETA ? 3 : 2;
  const IN *const a = buffers[0], *const x = buffers[1], *const third = operands == 3 ? buffers[2] : a;
  IN *const out = buffers[operands];
  poller poll = new_poller();
  const int team = count < MANY || omp_in_parallel() ? 1 : (int)(sizes[2] < omp_get_max_threads() ? sizes[2] : omp_get_max_threads());
#pragma omp parallel for schedule(dynamic) num_threads(team)
  for (int64_t block = 0; block < count; block += BLOCK) {
    if (interrupted(&poll)) continue;
    for (int64_t i = block; i < count && i < block + BLOCK; ++i)
      out[i] = SAVE(computed(function, LOAD(a[i * steps[0]]), LOAD(x[i * steps[1]]), LOAD(third[operands == 3 ? i * steps[2] : 0])));
  }
}

// Numbers of NumPy's generator PCG64, the same stream: doubles, bounded integers, and normal and exponential ones by a ziggurat.
//
// PCG64 is a linear congruential generator of 128 bits whose outputs are permuted (O'Neill 2014, XSL-RR); the state after any number
// of steps is a product away, so steps go in CHAINS that do not wait for each other, and threads begin where they want. A ziggurat takes
// one word of the stream for most numbers and more for some: where a number begins is not known ahead. A thread begins anywhere,
// notes where its first numbers begin, and is joined where the thread before it ends at one of them, which is nearly always its first.
#include <omp.h>
#include <stdint.h>
#include <string.h>

typedef unsigned __int128 uint128_t;

#define MULTIPLIER (((uint128_t)0x2360ED051FC65DA4ull << 64) | 0x4385DF649FCCF645ull)
#define CHAINS 4
#define BUFFER 2048     // words of 64 bits that a thread has at hand
#define PIECE 32768     // words that a thread decodes before threads meet: long, as a meeting may wait until another process is done
#define NOTED 64        // first numbers of a piece whose beginnings are noted
#define LAYERS 256      // of a ziggurat

enum { NORMAL, EXPONENTIAL, INTEGER };

// NumPy's interface of a bit generator (numpy/random/bitgen.h).
typedef struct {
  void *state;
  uint64_t (*next_uint64)(void *);
  uint32_t (*next_uint32)(void *);
  double (*next_double)(void *);
  uint64_t (*next_raw)(void *);
} bit_generator;

// Words are of 64 bits, or of 32 where integers are wanted: then `halves` is 2.
typedef struct {
  uint128_t state, step;  // before the next words; the increment
  int64_t halves, at, filled, before;  // the words in `words` that are used and at hand; those used up before them
  uint64_t words[BUFFER];
} stream;

typedef struct {
  int64_t kind;
  double (*function)(bit_generator *);  // NumPy's, for numbers that take more than a word
  uint64_t accepted[LAYERS];            // of a layer: what lies below it is a number at once
  double scale[LAYERS];
  uint64_t range;                       // of integers, from `least` on
  int64_t least;
  int64_t scaled;                       // whether numbers are `low + width` times what is drawn
  double low, width;
} decoder;

// What a thread decodes of PIECE words: numbers, where the first of them begin, where the word after the last one lies.
typedef struct {
  int64_t count, end, skipped, place, starts[NOTED];
  double numbers[PIECE];
} piece;

static uint128_t advanced(uint128_t state, uint128_t step, uint64_t count) {
  uint128_t multiplier = 1, sum = 0, factor = MULTIPLIER, term = step;
  for (; count; count >>= 1) {
    if (count & 1) multiplier *= factor, sum = sum * factor + term;
    term *= factor + 1;
    factor *= factor;
  }
  return multiplier * state + sum;
}

static inline uint64_t output(uint128_t state) {
  const uint64_t folded = (uint64_t)(state >> 64) ^ (uint64_t)state;
  const int by = (int)(state >> 122);
  return folded >> by | folded << (-by & 63);
}

// The next `count` words, a multiple of CHAINS; the state after them.
static uint128_t words_after(uint128_t state, uint128_t step, uint64_t *restrict out, int64_t count) {
  uint128_t chain[CHAINS], last = state, factor = MULTIPLIER, term = step;
  for (int k = 0; k < CHAINS; ++k) chain[k] = state = state * MULTIPLIER + step;
  for (int k = 1; k < CHAINS; k *= 2) term *= factor + 1, factor *= factor;
  for (int64_t i = 0; i < count; i += CHAINS) {
    last = chain[CHAINS - 1];
    #pragma GCC unroll 4
    for (int k = 0; k < CHAINS; ++k) out[i + k] = output(chain[k]), chain[k] = chain[k] * factor + term;
  }
  return last;
}

static void begin(stream *s, uint128_t state, uint128_t step, const decoder *d) {
  s->state = state, s->step = step, s->halves = d->kind == INTEGER ? 2 : 1, s->at = s->filled = s->before = 0;
}

static void refill(stream *s) {
  s->before += s->filled;
  s->state = words_after(s->state, s->step, s->words, BUFFER);
  s->at = 0, s->filled = s->halves * BUFFER;
}

static inline int64_t used(const stream *s) { return s->before + s->at; }

static uint64_t next_uint64(void *state) {
  stream *s = state;
  if (s->at == s->filled) refill(s);
  return s->words[s->at++];
}

static uint32_t next_uint32(void *state) {
  stream *s = state;
  if (s->at == s->filled) refill(s);
  return ((const uint32_t *)s->words)[s->at++];
}

static double next_double(void *state) { return (double)(next_uint64(state) >> 11) * 0x1p-53; }

// Where the words at hand end that may begin one of `most` numbers before word `limit`.
static inline int64_t stop_of(stream *s, int64_t limit, int64_t most) {
  if (s->at == s->filled) refill(s);
  int64_t stop = s->filled;
  if (stop - s->at > most) stop = s->at + most;
  return stop < limit - s->before ? stop : limit - s->before;
}

static inline int64_t ziggurat(stream *s, const decoder *d, int64_t limit, int64_t most, double *restrict out, int64_t *restrict starts, const int normal) {
  bit_generator generator = {s, next_uint64, next_uint32, next_double, next_uint64};
  int64_t count = 0;
  while (count < most && used(s) < limit) {
    const int64_t stop = stop_of(s, limit, most - count);
    int64_t i = s->at;
    for (; i < stop; ++i) {
      const uint64_t word = normal ? s->words[i] : s->words[i] >> 3;
      const uint64_t layer = word & (LAYERS - 1), size = normal ? word >> 9 & 0x000fffffffffffffull : word >> 8;
      if (starts && count < NOTED) starts[count] = s->before + i;
      const double number = (double)(int64_t)size * d->scale[layer];
      uint64_t bits;
      memcpy(&bits, &number, sizeof bits);
      if (normal) bits ^= word >> 8 << 63;
      memcpy(out + count, &bits, sizeof bits);
      if (__builtin_expect(size >= d->accepted[layer], 0)) break;
      ++count;
    }
    s->at = i;
    if (i < stop) out[count++] = d->function(&generator);
  }
  return count;
}

// Multiplication and rejection (Lemire 2019).
static int64_t integers(stream *s, const decoder *d, int64_t limit, int64_t most, int64_t *restrict out, int64_t *restrict starts) {
  const uint64_t range = d->range;
  const uint32_t accepted = -(uint32_t)range % (uint32_t)range;
  int64_t count = 0;
  while (count < most && used(s) < limit) {
    const int64_t stop = stop_of(s, limit, most - count), length = stop - s->at, last = s->before + stop;
    const uint32_t *words = (const uint32_t *)s->words + s->at;
    uint32_t rejected = 0;
    for (int64_t i = 0; i < length; ++i) {
      const uint64_t product = words[i] * range;
      out[count + i] = d->least + (int64_t)(product >> 32);
      rejected |= (uint32_t)product < accepted;
    }
    if (!rejected) {
      for (int64_t i = 0; starts && i < length && count + i < NOTED; ++i) starts[count + i] = used(s) + i;
      count += length, s->at = stop;
      continue;
    }
    while (used(s) < last) {
      if (starts && count < NOTED) starts[count] = used(s);
      uint64_t product;
      do product = next_uint32(s) * range;
      while ((uint32_t)product < accepted);
      out[count++] = d->least + (int64_t)(product >> 32);
    }
  }
  return count;
}

// The numbers that begin before word `limit` of a stream, at most `most`; where the first begin, unless `starts` is null.
static int64_t decode(stream *s, const decoder *d, int64_t limit, int64_t most, double *out, int64_t *starts) {
  if (d->kind == INTEGER) return integers(s, d, limit, most, (int64_t *)out, starts);
  const int64_t count = d->kind == NORMAL ? ziggurat(s, d, limit, most, out, starts, 1) : ziggurat(s, d, limit, most, out, starts, 0);
  if (d->scaled)
    for (int64_t i = 0; i < count; ++i) out[i] = d->low + d->width * out[i];
  return count;
}

// Of the PIECE words from `first` on, whose state is `state`'s: numbers from word `entry` on.
static void decode_piece(piece *p, const decoder *d, uint128_t state, uint128_t step, int64_t first, int64_t entry) {
  stream s;
  begin(&s, state, step, d);
  s.state = advanced(state, step, (uint64_t)(first / s.halves));
  refill(&s);
  s.at = entry;
  p->count = decode(&s, d, PIECE, PIECE, p->numbers, p->starts);
  p->end = used(&s);
}

// How many numbers of a piece begin before word `entry`; -1 where none of those noted begins there.
static int64_t joined(const piece *p, int64_t entry) {
  for (int64_t k = 0; k < p->count && k < NOTED; ++k)
    if (p->starts[k] == entry) return k;
  return -1;
}

// `n` numbers; the words of the stream that they took. `words` is the state and the increment, lower halves first.
int64_t draw(const uint64_t *words, const decoder *d, int64_t n, double *out, int64_t threads, piece *pieces) {
  const uint128_t state = (uint128_t)words[1] << 64 | words[0], step = (uint128_t)words[3] << 64 | words[2];
  int64_t done = 0, first = 0, entry = 0;
  while (threads > 1 && n - done >= threads * PIECE) {
    #pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t t = 0; t < threads; ++t) decode_piece(pieces + t, d, state, step, first + t * PIECE, t ? 0 : entry);
    for (int64_t t = 0; t < threads; ++t) {
      piece *p = pieces + t;
      p->skipped = t ? joined(p, entry) : 0;
      if (p->skipped < 0) decode_piece(p, d, state, step, first + t * PIECE, entry), p->skipped = 0;
      p->place = done;
      done += p->count - p->skipped;
      entry = p->end - PIECE;
    }
    first += threads * PIECE;
    #pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t t = 0; t < threads; ++t) {
      const piece *p = pieces + t;
      memcpy(out + p->place, p->numbers + p->skipped, (size_t)(p->count - p->skipped) * sizeof(double));
    }
  }
  stream s;
  begin(&s, state, step, d);
  s.state = advanced(state, step, (uint64_t)(first / s.halves));
  refill(&s);
  s.at = entry;
  while (done < n) done += decode(&s, d, INT64_MAX, n - done < PIECE ? n - done : PIECE, out + done, 0);
  return first + used(&s);
}

// Doubles of the unit interval, or `low + width` times them: a word each.
void draw_doubles(const uint64_t *words, int64_t n, double *out, int64_t threads, int64_t scaled, double low, double width) {
  const uint128_t state = (uint128_t)words[1] << 64 | words[0], step = (uint128_t)words[3] << 64 | words[2];
  #pragma omp parallel num_threads(threads) if (threads > 1 && n >= 2 * PIECE)
  {
    const int64_t me = omp_get_thread_num(), team = omp_get_num_threads();
    const int64_t from = n / team * me, to = me == team - 1 ? n : n / team * (me + 1);
    uint128_t at = advanced(state, step, (uint64_t)from);
    uint64_t block[BUFFER];
    for (int64_t i = from; i < to; i += BUFFER) {
      const int64_t length = to - i < BUFFER ? to - i : BUFFER;
      at = words_after(at, step, block, BUFFER);
      for (int64_t k = 0; k < length; ++k) {
        const double number = (double)(int64_t)(block[k] >> 11) * 0x1p-53;
        out[i + k] = scaled ? low + width * number : number;
      }
    }
  }
}

// The state `count` words of 64 bits further on, and the last of these words, into `words[0 .. 2]`.
void advance_draws(uint64_t *words, int64_t count) {
  const uint128_t step = (uint128_t)words[3] << 64 | words[2];
  const uint128_t state = advanced((uint128_t)words[1] << 64 | words[0], step, (uint64_t)count);
  words[0] = (uint64_t)state, words[1] = (uint64_t)(state >> 64), words[2] = output(state);
}

// A stream of given words, to learn a ziggurat's layers from NumPy's function: what it takes a second word for lies above the layer.
typedef struct { uint64_t first, calls; } given_words;

static uint64_t given_word(void *state) {
  given_words *given = state;
  return given->calls++ ? (uint64_t)1 << 11 | 2 : given->first;
}

static double given_double(void *state) {
  ++((given_words *)state)->calls;
  return 0.5;
}

void learn_layers(decoder *d) {
  const int shift = d->kind == NORMAL ? 9 : 11, layers = d->kind == NORMAL ? 0 : 3, bits = d->kind == NORMAL ? 52 : 53;
  given_words given;
  bit_generator generator = {&given, given_word, 0, given_double, given_word};
  for (uint64_t layer = 0; layer < LAYERS; ++layer) {
    uint64_t below = 0;
    for (int bit = bits - 1; bit >= 0; --bit) {
      const uint64_t size = (below | (uint64_t)1 << bit) - 1;  // is this size accepted at once?
      given.first = size << shift | layer << layers, given.calls = 0;
      d->function(&generator);
      if (given.calls == 1) below |= (uint64_t)1 << bit;
    }
    d->accepted[layer] = below;
    given.first = (uint64_t)1 << shift | layer << layers, given.calls = 0;
    const double one = d->function(&generator);
    d->scale[layer] = given.calls == 1 ? one : 0;
  }
}

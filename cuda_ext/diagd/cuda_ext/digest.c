/* The compiled path of the digest (definition.py) on CPUs: one pass over the memory, for bits and statistics alike.
 *
 * Plain C without Python's or torch's headers, loaded by ctypes (compiled.py): one library serves every version of both.
 */
#include <string.h>

#include "mix.h"

#define BLOCK ((size_t)1 << 15) /* words */
#define TILE ((size_t)512)      /* words: what stays in the first-level cache between the two readings of it */

/* A tensor's elements may begin at any byte, and are read as words whatever they are. */
typedef uint64_t __attribute__((aligned(1), may_alias)) word;
typedef uint32_t __attribute__((aligned(1), may_alias)) word32;

enum kind { BITS_ONLY, FLOAT32, FLOAT64, FLOAT16, BFLOAT16 };

struct sums {
    uint64_t total; /* ΣF */
    uint64_t nonfinite;
    double square_sum; /* this and the next over finite elements */
    double absmax;
};

/* Adds `words` words, the first of them at `place` in its block, to a and b. */
INLINE void add_words(const word *data, size_t words, size_t place, uint64_t *a, uint64_t *b) {
    uint64_t sum_a = 0, sum_b = 0, key = (uint64_t)place * GOLDEN;
    for (size_t j = 0; j < words; j++) {
        key += GOLDEN;
        uint64_t x = data[j] ^ key;
        sum_a += x * (uint64_t)((int64_t)x >> 32);
        sum_b += x * ((key ^ (key >> 32)) | 1);
    }
    *a += sum_a;
    *b += sum_b;
}

/* By unions: gcc 12 does not vectorise over a memcpy. */
INLINE float as_float(uint32_t bits) { return ((union { uint32_t bits; float value; }){bits}).value; }
INLINE double as_double(uint64_t bits) { return ((union { uint64_t bits; double value; }){bits}).value; }

/* A half's magnitude. Below its smallest normal value by a subtraction, which a mode that flushes denormals leaves exact. */
INLINE float half_magnitude(uint32_t bits) {
    float normal = as_float((bits << 13) + (UINT32_C(112) << 23));
    float small = as_float((bits << 13) + (UINT32_C(113) << 23)) - as_float(UINT32_C(113) << 23);
    return bits < 0x400 ? small : normal;
}

/* A magnitude's bits as a float; of float16's, whose infinity lies elsewhere, only finite ones. */
INLINE float magnitude_of(uint32_t bits, int kind) { return kind == FLOAT16 ? half_magnitude(bits) : as_float(bits); }

struct tally {
    uint32_t largest, nonfinite; /* magnitudes compare as their bits do */
    float squares;
    double exact_squares;
};

/* Takes one magnitude. What is not finite is counted, and is zero for the rest. */
INLINE void take(uint32_t bits, int kind, int exact, struct tally *tally) {
    uint32_t kept = bits < (kind == FLOAT16 ? 0x7C00u : 0x7F800000u) ? ~0u : 0;
    float value = magnitude_of(bits & kept, kind);
    if (exact) {
        tally->exact_squares += (double)value * value;
        return;
    }
    tally->nonfinite -= ~kept;
    tally->largest = (bits & kept) > tally->largest ? bits & kept : tally->largest;
    tally->squares += value * value;
}

/* `kind` and `exact` are constants where this is used: the loop is compiled for each. */
INLINE struct tally tally_up(const word32 *data, size_t count, int kind, int exact) {
    struct tally tally = {0, 0, 0, 0};
    for (size_t i = 0; i < count; i++) {
        uint32_t pair = data[i];
        if (kind == FLOAT32) {
            take(pair & 0x7FFFFFFF, kind, exact, &tally);
        } else if (kind == BFLOAT16) { /* the upper half of a float32 */
            take(pair & 0x7FFF0000, kind, exact, &tally);
            take((pair << 16) & 0x7FFF0000, kind, exact, &tally);
        } else {
            take((pair >> 16) & 0x7FFF, kind, exact, &tally);
            take(pair & 0x7FFF, kind, exact, &tally);
        }
    }
    return tally;
}

/* The squares of so few elements are added up as float, which halves the time. Where they could leave its range (what is
 * far below the largest element counts for nothing), they are added up again as double. */
INLINE void add_singles(const word32 *data, size_t count, int kind, struct sums *out) {
    struct tally tally = tally_up(data, count, kind, 0);
    double absmax = magnitude_of(tally.largest, kind), square_sum = tally.squares;
    if (tally.largest && !(absmax > 1e-12 && absmax < 1e15)) square_sum = tally_up(data, count, kind, 1).exact_squares;
    out->nonfinite += tally.nonfinite;
    out->square_sum += square_sum;
    out->absmax = absmax > out->absmax ? absmax : out->absmax;
}

INLINE void add_doubles(const word *data, size_t count, struct sums *out) {
    uint64_t largest = 0, nonfinite = 0;
    double square_sum = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = data[i] & UINT64_C(0x7FFFFFFFFFFFFFFF);
        uint64_t kept = bits < UINT64_C(0x7FF0000000000000) ? ~UINT64_C(0) : 0;
        double value = as_double(bits & kept);
        nonfinite -= ~kept;
        largest = (bits & kept) > largest ? bits & kept : largest;
        square_sum += value * value;
    }
    out->nonfinite += nonfinite;
    out->square_sum += square_sum;
    out->absmax = as_double(largest) > out->absmax ? as_double(largest) : out->absmax;
}

INLINE void add_statistics(const word *data, size_t words, int kind, struct sums *out) {
    switch (kind) {
    case FLOAT32: add_singles((const word32 *)data, 2 * words, FLOAT32, out); break;
    case FLOAT64: add_doubles(data, words, out); break;
    case FLOAT16: add_singles((const word32 *)data, 2 * words, FLOAT16, out); break;
    case BFLOAT16: add_singles((const word32 *)data, 2 * words, BFLOAT16, out); break;
    default: break;
    }
}

INLINE void add_block(const char *data, size_t nbytes, uint64_t index, int kind, struct sums *out) {
    uint64_t a = 0, b = 0, last = 0;
    const word *words = (const word *)data;
    size_t whole = nbytes / 8;
    for (size_t place = 0; place < whole; place += TILE) {
        size_t count = whole - place < TILE ? whole - place : TILE;
        add_words(words + place, count, place, &a, &b);
        add_statistics(words + place, count, kind, out);
    }
    if (nbytes % 8) {
        memcpy(&last, words + whole, nbytes % 8);
        add_words((const word *)&last, 1, whole, &a, &b);
        add_statistics((const word *)&last, 1, kind, out);
    }
    out->total += mix(b + mix(a + (index + 1) * GOLDEN));
}

#define ARGUMENTS                                                                                                      \
    size_t count, const uint64_t *address, const uint64_t *nbytes, const uint64_t *first_block, const int32_t *kind,   \
        struct sums *out

INLINE void digest_all(ARGUMENTS) {
    for (size_t i = 0; i < count; i++) {
        const char *data = (const char *)(uintptr_t)address[i];
        uint64_t index = first_block[i];
        for (uint64_t done = 0; done < nbytes[i]; done += 8 * BLOCK, index++) {
            uint64_t left = nbytes[i] - done;
            add_block(data + done, left < 8 * BLOCK ? (size_t)left : 8 * BLOCK, index, kind[i], out + i);
        }
    }
}

/* The same code, compiled for each generation of vector units. */
#define COMPILED_FOR(name, units)                                                                                      \
    __attribute__((target(units))) static void name(ARGUMENTS) {                                                       \
        digest_all(count, address, nbytes, first_block, kind, out);                                                    \
    }

#if defined(__x86_64__)
COMPILED_FOR(digest_avx512, AVX512)
COMPILED_FOR(digest_avx2, AVX2)
#endif

/* Adds to out[i] the bytes at address[i], of which the first begins the block `first_block[i]`. */
void diagd_digest(ARGUMENTS) {
#if defined(__x86_64__)
    if (has_avx512()) {
        digest_avx512(count, address, nbytes, first_block, kind, out);
        return;
    }
    if (has_avx2()) {
        digest_avx2(count, address, nbytes, first_block, kind, out);
        return;
    }
#endif
    digest_all(count, address, nbytes, first_block, kind, out);
}

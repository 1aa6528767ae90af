/* The compiled path of the additive digest (additive.py) on CPUs; in the library of digest.c, and like it plain C. */
#include "mix.h"

#define MAX_DIMS 16

typedef uint16_t __attribute__((aligned(1), may_alias)) half;
typedef uint32_t __attribute__((aligned(1), may_alias)) single;
typedef uint64_t __attribute__((aligned(1), may_alias)) whole;

/* `key` is that of the first element, and grows by `step` from each to the next. `stride` in bytes. */
#define RUN                                                                                                            \
    const char *data, uint64_t count, int64_t stride, uint64_t key, uint64_t step

#define DEFINE_RUN(name, type)                                                                                         \
    INLINE uint64_t name(RUN) {                                                                                        \
        uint64_t total = 0;                                                                                            \
        if (stride == (int64_t)sizeof(type)) { /* known to the compiler, which then takes many at once */              \
            for (uint64_t i = 0; i < count; i++) total += mix(((const type *)data)[i] + key + i * step);               \
        } else {                                                                                                       \
            for (uint64_t i = 0; i < count; i++) total += mix(*(const type *)(data + (int64_t)i * stride) + key + i * step); \
        }                                                                                                              \
        return total;                                                                                                  \
    }

DEFINE_RUN(run_of_1, uint8_t)
DEFINE_RUN(run_of_2, half)
DEFINE_RUN(run_of_4, single)
DEFINE_RUN(run_of_8, whole)

INLINE uint64_t run(uint32_t size, RUN) {
    switch (size) {
    case 1: return run_of_1(data, count, stride, key, step);
    case 2: return run_of_2(data, count, stride, key, step);
    case 4: return run_of_4(data, count, stride, key, step);
    default: return run_of_8(data, count, stride, key, step);
    }
}

#define ARGUMENTS                                                                                                      \
    uint64_t address, uint32_t size, uint32_t dims, const uint64_t *sizes, const int64_t *strides, uint64_t first,     \
        const uint64_t *steps

/* Over all dimensions but the last, the way that an odometer counts. */
INLINE uint64_t add_all(ARGUMENTS) {
    uint64_t at[MAX_DIMS] = {0}, total = 0, last = dims - 1;
    const char *data = (const char *)(uintptr_t)address;
    for (;;) {
        total += run(size, data, sizes[last], strides[last], (first + 1) * GOLDEN, steps[last] * GOLDEN);
        uint64_t dim = last;
        for (;;) {
            if (dim-- == 0) return total;
            data += strides[dim];
            first += steps[dim];
            if (++at[dim] < sizes[dim]) break;
            data -= (int64_t)sizes[dim] * strides[dim];
            first -= sizes[dim] * steps[dim];
            at[dim] = 0;
        }
    }
}

#define COMPILED_FOR(name, units)                                                                                      \
    __attribute__((target(units))) static uint64_t name(ARGUMENTS) {                                                   \
        return add_all(address, size, dims, sizes, strides, first, steps);                                             \
    }

#if defined(__x86_64__)
COMPILED_FOR(add_avx512, AVX512)
COMPILED_FOR(add_avx2, AVX2)
#endif

/* The total of a block of elements of 1, 2, 4 or 8 bytes: `sizes` and `strides` (in bytes) say where they lie, `first`
 * and `steps` which indices they have in the whole tensor. At least one dimension, at most MAX_DIMS, none of them empty. */
uint64_t diagd_add(ARGUMENTS) {
#if defined(__x86_64__)
    if (has_avx512()) return add_avx512(address, size, dims, sizes, strides, first, steps);
    if (has_avx2()) return add_avx2(address, size, dims, sizes, strides, first, steps);
#endif
    return add_all(address, size, dims, sizes, strides, first, steps);
}

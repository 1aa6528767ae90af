/* What the compiled paths of both digests (definition.py, additive.py) have in common. */
#ifndef DIAGD_MIX_H
#define DIAGD_MIX_H

#include <stddef.h>
#include <stdint.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the digest is defined on little-endian words, and this machine is big-endian"
#endif

#define GOLDEN UINT64_C(0x9E3779B97F4A7C15)
#define INLINE static inline __attribute__((always_inline))
#define AVX512 "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512"
#define AVX2 "avx2,fma"

INLINE uint64_t mix(uint64_t value) {
    value = (value ^ (value >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94D049BB133111EB);
    return value ^ (value >> 31);
}

#if defined(__x86_64__)
INLINE int has_avx512(void) {
    return __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

INLINE int has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#endif

#endif

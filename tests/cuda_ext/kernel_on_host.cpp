// Compiles digest.cu for a CPU, each thread of each thread block after the other: its logic, without a GPU.
#include <cstdint>
#include <cstring>

#define __device__
#define __global__
#define __launch_bounds__(threads)

struct place { unsigned x; };
static place blockIdx, threadIdx;
struct alignas(16) ulonglong2 { unsigned long long x, y; };

static ulonglong2 __ldcs(const ulonglong2 *from) { return *from; }
template <class T> static void atomicAdd(T *to, T value) { *to += value; }
static void atomicMax(unsigned long long *to, unsigned long long value) { *to = value > *to ? value : *to; }
template <class To, class From> static To as(From from) {
    To to;
    static_assert(sizeof to == sizeof from);
    std::memcpy(&to, &from, sizeof to);
    return to;
}
static float __uint_as_float(unsigned bits) { return as<float>(bits); }
static double __longlong_as_double(long long bits) { return as<double>(bits); }
static long long __double_as_longlong(double value) { return as<long long>(value); }

#include "digest.cu"

extern "C" void launch(uint64_t jobs, uint64_t tiles, uint64_t table, uint64_t sums, uint64_t results) {
    for (blockIdx.x = 0; blockIdx.x < tiles; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < THREADS; threadIdx.x++)
            diagd_digest_tiles((const job *)table, (u32)jobs, (block_sums *)sums, (result *)results);
    for (blockIdx.x = 0; blockIdx.x < jobs; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < THREADS; threadIdx.x++)
            diagd_digest_fold((const job *)table, (u32)jobs, (const block_sums *)sums, (result *)results);
}

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

static void run_tiles(uint64_t tiles, uint64_t table, uint32_t jobs, uint64_t sums, uint64_t results) {
    for (blockIdx.x = 0; blockIdx.x < tiles; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < THREADS; threadIdx.x++)
            diagd_digest_tiles((const job *)table, jobs, (block_sums *)sums, (result *)results);
}

static void run_fold(uint64_t blocks, uint64_t table, uint32_t jobs, uint64_t sums, uint64_t results) {
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < THREADS; threadIdx.x++)
            diagd_digest_fold((const job *)table, jobs, (const block_sums *)sums, (result *)results);
}

extern "C" void launch(uint64_t jobs, uint64_t tiles, uint64_t table, uint64_t sums, uint64_t results) {
    run_tiles(tiles, table, (uint32_t)jobs, sums, results);
    run_fold(jobs, table, (uint32_t)jobs, sums, results);
}

// What driver.py calls of the CUDA driver, with the driver's own signatures. A context must be current for all but the first.
typedef void (*function)(uint64_t, uint64_t, uint32_t, uint64_t, uint64_t);
static const int INVALID_VALUE = 1, INVALID_CONTEXT = 201, NOT_FOUND = 500;
static int current;

extern "C" int cuInit(unsigned flags) { return flags ? INVALID_VALUE : 0; }
extern "C" int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, ordinal == 3 ? 0 : INVALID_VALUE; }
extern "C" int cuDevicePrimaryCtxRetain(void **context, int device) {
    return *context = (void *)0x1234567812345678, device == 3 ? 0 : INVALID_VALUE;
}
extern "C" int cuCtxPushCurrent_v2(void *context) {
    return current += context == (void *)0x1234567812345678, current == 1 ? 0 : INVALID_CONTEXT;
}
extern "C" int cuCtxPopCurrent_v2(void **) { return current-- == 1 ? 0 : INVALID_CONTEXT; }
extern "C" int cuModuleLoadData(void **module, const void *image) {
    const char *text = (const char *)image;
    if (std::strncmp(text, "// Made of digest.cu", 20) || text[std::strlen(text) - 1] != '\n') return INVALID_VALUE;
    return *module = (void *)0x8765432187654321, current == 1 ? 0 : INVALID_CONTEXT;
}
extern "C" int cuModuleGetFunction(function *found, void *module, const char *name) {
    if (module != (void *)0x8765432187654321) return INVALID_VALUE;
    *found = !std::strcmp(name, "diagd_digest_tiles") ? run_tiles : !std::strcmp(name, "diagd_digest_fold") ? run_fold : 0;
    return *found ? 0 : NOT_FOUND;
}
extern "C" int cuLaunchKernel(function run, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned y2, unsigned z2,
                              unsigned shared, void *stream, void **given, void **extra) {
    if (current != 1) return INVALID_CONTEXT;
    if (y * z * y2 * z2 != 1 || threads != THREADS || shared || extra || stream != (void *)0x1122334411223344)
        return INVALID_VALUE;
    run(x, *(uint64_t *)given[0], *(uint32_t *)given[1], *(uint64_t *)given[2], *(uint64_t *)given[3]);
    return 0;
}
extern "C" int cuGetErrorString(int code, const char **text) {
    return *text = code == NOT_FOUND ? "named symbol not found" : "invalid", 0;
}

/* The digest (definition.py) of many tensors on a GPU, each byte read once: diagd_digest_tiles, then diagd_digest_fold.
 *
 * Uses nothing but the language, so that the PTX made of it (make_ptx.py) runs on every driver since CUDA 11, and that
 * tests/cuda_ext can compile the same lines for a CPU, where the threads run one after the other.
 */
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

enum { BLOCK = 1 << 15, TILE = 1 << 13, THREADS = 256 }; /* words, words, threads of a tile */
enum kind { BITS_ONLY, FLOAT32, FLOAT64, FLOAT16, BFLOAT16 };

static const u64 GOLDEN = 0x9E3779B97F4A7C15ull;

struct job {
    u64 address;     /* may lie between words */
    u64 nbytes;
    u64 first_block; /* its index in the tensor, of which this may be a later part */
    u64 kind;
    u64 first_tile;  /* of this job among all jobs' tiles, and the same for its blocks in `sums` */
    u64 first_sums;
};

struct block_sums { u64 a, b; };

struct result {
    u64 total, nonfinite;
    double square_sum;
    u64 absmax; /* a double's bits: those of magnitudes compare as they do */
};

struct tally {
    u64 a, b, largest;
    u32 nonfinite;
    float squares;
    double exact_squares;
};

__device__ static u64 mix(u64 value) {
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
    return value ^ (value >> 31);
}

__device__ static float as_float(u32 bits) { return __uint_as_float(bits); }
__device__ static double as_double(u64 bits) { return __longlong_as_double((i64)bits); }

__device__ static float half_magnitude(u32 bits) {
    float normal = as_float((bits << 13) + (112u << 23));
    float small = as_float((bits << 13) + (113u << 23)) - as_float(113u << 23);
    return bits < 0x400 ? small : normal;
}

template <int KIND> __device__ static double magnitude(u64 bits) {
    if (KIND == FLOAT64) return as_double(bits);
    return KIND == FLOAT16 ? half_magnitude((u32)bits) : as_float((u32)bits);
}

/* Takes one magnitude. What is not finite is counted, and is zero for the rest. */
template <int KIND, bool EXACT> __device__ static void take(u32 bits, tally &t) {
    const bool finite = bits < (KIND == FLOAT16 ? 0x7C00u : 0x7F800000u);
    bits = finite ? bits : 0;
    const float value = KIND == FLOAT16 ? half_magnitude(bits) : as_float(bits);
    if (EXACT) {
        t.exact_squares += (double)value * value;
        return;
    }
    t.nonfinite += !finite;
    t.largest = bits > t.largest ? bits : t.largest;
    t.squares += value * value;
}

template <int KIND, bool EXACT> __device__ static void take_word(u64 word, tally &t) {
    const u32 low = (u32)word, high = (u32)(word >> 32);
    if (KIND == FLOAT32) {
        take<KIND, EXACT>(low & 0x7FFFFFFF, t);
        take<KIND, EXACT>(high & 0x7FFFFFFF, t);
    } else if (KIND == BFLOAT16) { /* the upper half of a float32 */
        take<KIND, EXACT>(low & 0x7FFF0000, t);
        take<KIND, EXACT>((low << 16) & 0x7FFF0000, t);
        take<KIND, EXACT>(high & 0x7FFF0000, t);
        take<KIND, EXACT>((high << 16) & 0x7FFF0000, t);
    } else if (KIND == FLOAT16) {
        take<KIND, EXACT>((low >> 16) & 0x7FFF, t);
        take<KIND, EXACT>(low & 0x7FFF, t);
        take<KIND, EXACT>((high >> 16) & 0x7FFF, t);
        take<KIND, EXACT>(high & 0x7FFF, t);
    } else if (KIND == FLOAT64) {
        u64 bits = word & 0x7FFFFFFFFFFFFFFFull;
        const bool finite = bits < 0x7FF0000000000000ull;
        bits = finite ? bits : 0;
        t.nonfinite += !finite;
        t.largest = bits > t.largest ? bits : t.largest;
        t.exact_squares += as_double(bits) * as_double(bits);
    }
}

template <int KIND, bool EXACT> __device__ static void add_word(u64 word, u32 place, tally &t) {
    if (!EXACT) {
        const u64 key = (u64)(place + 1) * GOLDEN, x = word ^ key;
        t.a += x * (u64)((i64)x >> 32);
        t.b += x * ((key ^ (key >> 32)) | 1);
    }
    take_word<KIND, EXACT>(word, t);
}

/* The word `offset` bytes into the job, from loads of aligned words; zeros follow the last byte. */
__device__ static u64 load_word(const job &one, u64 offset) {
    const u64 at = one.address + offset, end = one.address + one.nbytes, base = at & ~(u64)7;
    const u32 shift = 8 * (u32)(at & 7);
    u64 word = *(const u64 *)base >> shift;
    if (shift && base + 8 < end) word |= *(const u64 *)(base + 8) << (64 - shift);
    return end - at < 8 ? word & ~(~(u64)0 << (8 * (end - at))) : word;
}

/* What thread `thread` of a tile adds up: `words` of them, from the job's word `first` on. */
template <int KIND, bool EXACT> __device__ static void add_tile(const job &one, u64 first, u32 words, u32 thread, tally &t) {
    const u32 place = (u32)(first % BLOCK);
    if (!EXACT && words == TILE && one.address % 16 == 0 && first * 8 + TILE * 8 <= one.nbytes) {
        const ulonglong2 *pairs = (const ulonglong2 *)(one.address + first * 8);
#pragma unroll 4
        for (u32 i = 0; i < TILE / 2 / THREADS; i++) {
            const u32 pair = i * THREADS + thread;
            const ulonglong2 both = __ldcs(pairs + pair); /* read once: leave the cache to the training */
            add_word<KIND, EXACT>(both.x, place + 2 * pair, t);
            add_word<KIND, EXACT>(both.y, place + 2 * pair + 1, t);
        }
    } else {
        for (u32 i = thread; i < words; i += THREADS) add_word<KIND, EXACT>(load_word(one, (first + i) * 8), place + i, t);
    }
}

/* Squares are added up as float, at several times the speed. Where they could leave its range, again as double. */
template <int KIND> __device__ static void tally_up(const job &one, u64 first, u32 words, u32 thread, tally &t) {
    add_tile<KIND, false>(one, first, words, thread, t);
    if (KIND == BITS_ONLY) return;
    const double absmax = magnitude<KIND>(t.largest);
    t.largest = (u64)__double_as_longlong(absmax);
    if (KIND == FLOAT64) return;
    if (t.largest && !(absmax > 1e-12 && absmax < 1e15)) add_tile<KIND, true>(one, first, words, thread, t);
    else t.exact_squares = t.squares;
}

__device__ static tally tally_of(const job &one, u64 tile, u32 thread) {
    const u64 first = tile * TILE, left = (one.nbytes + 7) / 8 - first;
    const u32 words = left < TILE ? (u32)left : TILE;
    tally t = {0, 0, 0, 0, 0, 0};
    switch (one.kind) {
    case FLOAT32: tally_up<FLOAT32>(one, first, words, thread, t); break;
    case FLOAT64: tally_up<FLOAT64>(one, first, words, thread, t); break;
    case FLOAT16: tally_up<FLOAT16>(one, first, words, thread, t); break;
    case BFLOAT16: tally_up<BFLOAT16>(one, first, words, thread, t); break;
    default: tally_up<BITS_ONLY>(one, first, words, thread, t);
    }
    return t;
}

/* The last job that does not begin after this tile: one without tiles is never the last. */
__device__ static u32 find_job(const job *jobs, u32 count, u64 tile) {
    u32 low = 0, high = count;
    while (high - low > 1) {
        const u32 middle = low + (high - low) / 2;
        if (jobs[middle].first_tile <= tile) low = middle;
        else high = middle;
    }
    return low;
}

#ifdef __CUDACC__
/* Leaves the sum (and the largest) over the threads in those of thread 0. */
__device__ static void gather_threads(tally &t) {
    __shared__ tally warps[THREADS / 32];
    for (u32 round = 0; round < 2; round++) {
        for (u32 step = 16; step; step /= 2) {
            t.a += __shfl_down_sync(0xFFFFFFFFu, t.a, step);
            t.b += __shfl_down_sync(0xFFFFFFFFu, t.b, step);
            t.nonfinite += __shfl_down_sync(0xFFFFFFFFu, t.nonfinite, step);
            t.exact_squares += __shfl_down_sync(0xFFFFFFFFu, t.exact_squares, step);
            const u64 largest = __shfl_down_sync(0xFFFFFFFFu, t.largest, step);
            t.largest = largest > t.largest ? largest : t.largest;
        }
        if (round) return;
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = t;
        __syncthreads();
        const tally none = {0, 0, 0, 0, 0, 0};
        t = threadIdx.x < THREADS / 32 ? warps[threadIdx.x] : none;
    }
}
#endif

/* One tile a thread block. Adds to the sums of its block, and to the statistics of its job. */
extern "C" __global__ void __launch_bounds__(THREADS)
    diagd_digest_tiles(const job *jobs, u32 count, block_sums *sums, result *results) {
    const u32 found = find_job(jobs, count, blockIdx.x);
    const job one = jobs[found];
    const u64 tile = blockIdx.x - one.first_tile;
    tally t = tally_of(one, tile, threadIdx.x);
#ifdef __CUDACC__
    gather_threads(t);
    if (threadIdx.x) return;
#endif
    block_sums *mine = sums + one.first_sums + tile / (BLOCK / TILE);
    atomicAdd(&mine->a, t.a);
    atomicAdd(&mine->b, t.b);
    if (one.kind == BITS_ONLY) return;
    if (t.nonfinite) atomicAdd(&results[found].nonfinite, (u64)t.nonfinite);
    atomicAdd(&results[found].square_sum, t.exact_squares);
    atomicMax(&results[found].absmax, t.largest);
}

/* One job a thread block. Makes of the sums of its blocks their part of the digest. */
extern "C" __global__ void __launch_bounds__(THREADS)
    diagd_digest_fold(const job *jobs, u32 count, const block_sums *sums, result *results) {
    const job one = jobs[blockIdx.x];
    const u64 blocks = (one.nbytes + 8 * BLOCK - 1) / (8 * BLOCK);
    u64 total = 0;
    for (u64 i = threadIdx.x; i < blocks; i += THREADS) {
        const block_sums mine = sums[one.first_sums + i];
        total += mix(mine.b + mix(mine.a + (one.first_block + i + 1) * GOLDEN));
    }
    if (total) atomicAdd(&results[blockIdx.x].total, total);
}

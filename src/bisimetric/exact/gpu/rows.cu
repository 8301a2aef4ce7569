// Device code that the kernels on distance matrices share: types, rounding, rows in shared memory.
//
// Rows of a matrix are `pitch` numbers apart, a multiple of 32. Compiled for one problem with
//   VALUE_TYPE       float or double, the type of the matrix
//   STATE_BITS       16 or 32, the bits of a state id
//   SWEEP_THREADS    threads per block of a sweep
//   COPY_BYTES       bytes per bulk copy into shared memory
//   PREFETCH_BYTES   bytes of the row after the present one that are fetched into the L2 cache
//   WHOLE_ROWS       whether a row fits into shared memory
//   HAS_COST         whether a matrix `cost` is added to the differences of rewards
//   TILE_SIZE        side of the tiles in which matrices are transposed

typedef VALUE_TYPE T;
#if STATE_BITS == 16
typedef unsigned short state;
#else
typedef unsigned state;
#endif
typedef long long wide;
typedef unsigned long long bits;

struct alignas(16) Quad { unsigned word[4]; };
struct alignas(4 * sizeof(state)) State4 { state at[4]; };
struct alignas(16) Value4 { T at[4]; };
// 16 bytes of a row, and as many states.
constexpr int WIDTH = 16 / sizeof(T);
struct alignas(WIDTH * sizeof(state)) StateGroup { state at[WIDTH]; };
struct alignas(16) ValueGroup { T at[WIDTH]; };

__device__ __forceinline__ T maximum(T a, T b) { return a > b ? a : b; }

// a * b + c and a number in the type of the matrix, rounded down: lower bounds stay valid, and do not
// drift up by rounding.
__device__ __forceinline__ float fma_down(float a, float b, float c) { return __fmaf_rd(a, b, c); }
__device__ __forceinline__ double fma_down(double a, double b, double c) { return __fma_rd(a, b, c); }
__device__ __forceinline__ float round_down(double value, float) { return __double2float_rd(value); }
__device__ __forceinline__ double round_down(double value, double) { return value; }

// The cost of a pair, and a number plus that, rounded down.
#if HAS_COST
#define COST(s, t) cost[(s) * pitch + (t)]
__device__ __forceinline__ T add_down(T value, double cost) {
    return round_down(__dadd_rd(double(value), cost), T(0));
}
#else
#define COST(s, t) 0.0
__device__ __forceinline__ T add_down(T value, double) { return value; }
#endif

// Loads and stores of data that is used once: they leave other data in the cache.
#ifdef __CUDA_ARCH__
__device__ __forceinline__ Quad load_once(const Quad* from) {
    Quad value;
    asm("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(value.word[0]), "=r"(value.word[1]), "=r"(value.word[2]), "=r"(value.word[3]) : "l"(from));
    return value;
}
__device__ __forceinline__ void store_once(Quad* to, const Quad& value) {
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};"
        :: "l"(to), "r"(value.word[0]), "r"(value.word[1]), "r"(value.word[2]), "r"(value.word[3]) : "memory");
}
#else
__device__ __forceinline__ Quad load_once(const Quad* from) { return *from; }
__device__ __forceinline__ void store_once(Quad* to, const Quad& value) { *to = value; }
#endif

// Copies rows into shared memory asynchronously, `bytes` of each: one thread starts the bulk copies from
// compute capability 9.0 on; otherwise every thread copies a part.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define BULK_COPIES 1
#else
#define BULK_COPIES 0
#endif
struct RowCopy {
    Quad* target;
    unsigned bytes, barrier, phase;

    // The barrier of the copies is behind the longest row.
    __device__ __forceinline__ RowCopy(Quad* space, unsigned bytes)
        : target(space), bytes(bytes), barrier(bytes), phase(0) {
#if BULK_COPIES
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(address(target) + barrier) : "memory");
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        __syncthreads();
#endif
    }
#ifdef __CUDA_ARCH__
    static __device__ __forceinline__ unsigned address(const void* shared) {
        return static_cast<unsigned>(__cvta_generic_to_shared(shared));
    }
#endif
    // All threads must have finished reading the previous row.
    __device__ __forceinline__ void start(const T* row) {
#if BULK_COPIES
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                :: "r"(address(target) + barrier), "r"(bytes) : "memory");
            const char* from = reinterpret_cast<const char*>(row);
            const unsigned to = address(target);
            for (unsigned at = 0; at < bytes; at += COPY_BYTES) {
                const unsigned size = bytes - at < COPY_BYTES ? bytes - at : COPY_BYTES;
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                    :: "r"(to + at), "l"(from + at), "r"(size), "r"(to + barrier) : "memory");
            }
        }
#else
        const Quad* from = reinterpret_cast<const Quad*>(row);
        const int count = bytes / 16;
#ifdef __CUDA_ARCH__
        unsigned position = address(target) + 16 * threadIdx.x;
#pragma unroll 4
        for (int i = threadIdx.x; i < count; i += SWEEP_THREADS, position += 16 * SWEEP_THREADS)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(position), "l"(from + i));
        asm volatile("cp.async.commit_group;");
#else
        for (int i = threadIdx.x; i < count; i += SWEEP_THREADS) target[i] = from[i];
#endif
#endif
    }
    __device__ __forceinline__ void wait() {
#if BULK_COPIES
        asm volatile("{ .reg .pred done;\n"
                     "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                     "@!done bra again; }" :: "r"(address(target) + barrier), "r"(phase) : "memory");
        phase ^= 1;
#else
#ifdef __CUDA_ARCH__
        asm volatile("cp.async.wait_group 0;" ::: "memory");
#endif
        __syncthreads();
#endif
    }
    // Brings the first bytes of the row after this one into the L2 cache.
    __device__ __forceinline__ void prefetch(const T* row) const {
#if BULK_COPIES && PREFETCH_BYTES > 0
        if (threadIdx.x == 0) {
            const unsigned size = bytes < PREFETCH_BYTES ? bytes : PREFETCH_BYTES;
            asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(row), "r"(size));
        }
#endif
    }
};

#ifdef __CUDA_ARCH__
// A predicated load of a column that is not cached; a branch would serialise the loads.
__device__ __forceinline__ void load_uncached(float& value, const float* row, unsigned column, unsigned cached) {
    asm("{ .reg .pred p; setp.ge.u32 p, %2, %3; @p ld.global.nc.f32 %0, [%1]; }"
        : "+f"(value) : "l"(row + column), "r"(column), "r"(cached));
}
__device__ __forceinline__ void load_uncached(double& value, const double* row, unsigned column, unsigned cached) {
    asm("{ .reg .pred p; setp.ge.u32 p, %2, %3; @p ld.global.nc.f64 %0, [%1]; }"
        : "+d"(value) : "l"(row + column), "r"(column), "r"(cached));
}
#else
__device__ __forceinline__ void load_uncached(T& value, const T* row, unsigned column, unsigned cached) {
    if (column >= cached) value = row[column];
}
#endif

// Gathers columns of a row, whose first `cached` numbers are in shared memory.
template <int COUNT, typename Columns>
__device__ __forceinline__ void gather(
    T (&value)[COUNT], const Quad* space, const T* row, const Columns& column, unsigned cached) {
    const T* row_cached = reinterpret_cast<const T*>(space);
#if WHOLE_ROWS
#pragma unroll
    for (int i = 0; i < COUNT; ++i) value[i] = row_cached[column.at[i]];
#else
#pragma unroll
    for (int i = 0; i < COUNT; ++i) value[i] = row_cached[column.at[i] < cached ? column.at[i] : cached - 1];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) load_uncached(value[i], row, column.at[i], cached);
#endif
}

// One action of a state whose row is computed: the successor's row among those that are read.
struct alignas(8) Visit { unsigned row, action; };

// The visits of a block: a contiguous part of the states in the order in which they are computed, each
// in `parts` parts of its columns. A row that the next visit needs too stays in shared memory.
struct RowWalk {
    RowCopy copy;
    const T* rows;
    const Visit* visits;
    wide pitch;
    int actions, parts, low, high;
    unsigned row, next_row;
    bool copying;

    __device__ __forceinline__ RowWalk(Quad* space, unsigned cached, const T* rows, const Visit* visits,
                                       int count, wide pitch, int actions, int parts)
        : copy(space, cached * sizeof(T)), rows(rows), visits(visits), pitch(pitch), actions(actions),
          parts(parts), low(int(wide(count) * blockIdx.x / gridDim.x)),
          high(int(wide(count) * (blockIdx.x + 1) / gridDim.x)), copying(low < high) {
        if (copying) copy.start(rows + visits[wide(low) * actions].row * pitch);
    }
    // Begins the visit of the j-th action for a part of the columns of the v-th state.
    __device__ __forceinline__ unsigned enter(int v, int part, int j) {
        const Visit visit = visits[wide(v) * actions + j];
        const bool more_actions = j + 1 < actions, more_parts = part + 1 < parts;
        const wide following = wide(more_actions || more_parts ? v : v + 1) * actions + (more_actions ? j + 1 : 0);
        row = visit.row;
        next_row = more_actions || more_parts || v + 1 < high ? visits[following].row : row;
        return visit.action;
    }
    // Waits for the row, and returns where it is in global memory.
    __device__ __forceinline__ const T* wait() {
        if (copying) copy.wait();
        if (next_row != row) copy.prefetch(rows + next_row * pitch);
        return rows + row * pitch;
    }
    __device__ __forceinline__ void leave() {
        copying = next_row != row;
        if (!copying) return;
        __syncthreads();
        copy.start(rows + next_row * pitch);
    }
};

// The largest number of each block's threads, which overwrites shared memory.
__device__ __forceinline__ void write_block_maximum(T* maxima, T value, T* out) {
    __syncthreads();
    maxima[threadIdx.x] = value;
    for (int step = 512; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step && threadIdx.x + step < SWEEP_THREADS)
            maxima[threadIdx.x] = maximum(maxima[threadIdx.x], maxima[threadIdx.x + step]);
    }
    if (threadIdx.x == 0) out[blockIdx.x] = maxima[0];
}

// Two tiles of TILE_SIZE x TILE_SIZE, mirror images of each other, of block (x, y): the tile in row y that
// is x to the right of the diagonal, cyclically. Both are the same on the diagonal. Threads take 16 bytes
// of a row at a time, which may end in its padding.
struct TilePair {
    int from, to;
    bool is_repeated;

    __device__ __forceinline__ TilePair() {
        const int tiles = gridDim.y, column = blockIdx.y + blockIdx.x;
        from = TILE_SIZE * blockIdx.y;
        to = TILE_SIZE * (column < tiles ? column : column - tiles);
        is_repeated = 2 * blockIdx.x == tiles && 2 * blockIdx.y >= tiles;
    }
    static constexpr int GROUPS_PER_ROW = TILE_SIZE / WIDTH, COUNT = TILE_SIZE * GROUPS_PER_ROW;
    static __device__ __forceinline__ int row(int k) { return k / GROUPS_PER_ROW; }
    static __device__ __forceinline__ int column(int k) { return k % GROUPS_PER_ROW * WIDTH; }
};

// One step of the greedy policy, for the pair of `row` and the state that is `offset` to the right of it;
// later, many steps: their discounted cost, and the pair in which they end.
struct alignas(16) Step {
    double cost;
    state row, offset;
};

// The step of a pair to the pair of x and y, which belongs to the row of one of them.
__device__ __forceinline__ Step make_step(double cost, int x, int y, int states) {
    const int right = y >= x ? y - x : y - x + states;
    Step step;
    step.cost = cost;
    step.row = state(right <= states / 2 ? x : y);
    step.offset = state(right <= states / 2 ? right : states - right);
    return step;
}

#define INFINITE __longlong_as_double(0x7ff0000000000000)

// The larger of two numbers; NaN counts as infinite.
__device__ __forceinline__ double larger_or_nan(double a, double b) {
    return b <= a ? a : b == b ? b : INFINITE;
}

// The largest numbers of all threads of all blocks, at least 0; at most 256 threads per block.
__device__ __forceinline__ void write_maxima(double* residuals, double* values, bits* residual, bits* largest) {
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) {
            residuals[threadIdx.x] = fmax(residuals[threadIdx.x], residuals[threadIdx.x + step]);
            values[threadIdx.x] = fmax(values[threadIdx.x], values[threadIdx.x + step]);
        }
    }
    if (threadIdx.x == 0) {
        atomicMax(residual, bits(__double_as_longlong(residuals[0])));
        atomicMax(largest, bits(__double_as_longlong(values[0])));
    }
}

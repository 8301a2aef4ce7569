// Kernels on the rows of a distance matrix d (S x S) that one device holds; they follow rows.cu of exact/gpu.
// The matrix is symmetric, with 0 on its diagonal; device p holds the rows p * height to (p + 1) * height - 1.
//
// Rows follow each other without padding. Compiled for one problem with the macros of rows.cu, and
//   VALUE_BITS    bits of a number of the matrix
//   QUADS         groups of 4 columns in the registers of each thread of `sweep_rows`
//   LONG_COLUMNS  columns that a thread of `sweep_long_rows` visits at a time

#define VALUES_PER_QUAD (16 / int(sizeof(T)))
#define CHUNK (4 * QUADS * SWEEP_THREADS)

// The numbers from the last multiple of 16 bytes to the beginning of a row.
__device__ __forceinline__ int find_lead(wide start) { return int(start & (VALUES_PER_QUAD - 1)); }

// The bytes of `count` numbers of a row and its lead, in whole multiples of 16.
__device__ __forceinline__ unsigned count_bytes(int lead, int count) {
    return 16 * unsigned((lead + count + VALUES_PER_QUAD - 1) / VALUES_PER_QUAD);
}

// The largest numbers of all blocks' threads, which overwrite shared memory.
__device__ __forceinline__ void write_extremes(T* maxima, T increase, T value, bits* extremes) {
    __syncthreads();
    maxima[threadIdx.x] = increase;
    maxima[SWEEP_THREADS + threadIdx.x] = value;
    for (int step = 512; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step && threadIdx.x + step < SWEEP_THREADS)
            for (int at = threadIdx.x; at < 2 * SWEEP_THREADS; at += SWEEP_THREADS)
                maxima[at] = maximum(maxima[at], maxima[at + step]);
    }
    if (threadIdx.x == 0)
        for (int i = 0; i < 2; ++i)
            atomicMax(extremes + i, bits(__double_as_longlong(double(maxima[i * SWEEP_THREADS]))));
}

// backup = max(d, F(d)),
// F(d)(s, t) = cost(s, t) + max_a |R(s, a) - R(t, a)| + discount * d(next(s, a), next(t, a))
//
// One launch uses the rows that one step of an exchange makes available. Use j is the row slots[j] of them, the
// successor of a row for the action uses[j]; rows[i] has the uses offsets[i] to offsets[i + 1] - 1. stages[i]
// has bit 0 in the first step with a use of the row, and bit 1 in the last one. Until the last one, `backup`
// holds the maximum over the actions so far. The discount is a sum of two numbers. `extremes` are the bits of
// the largest F(d) - d, if positive, and of the largest F(d), as float64.
//
// A block computes CHUNK columns of some rows; the blocks for the other columns of the same rows run at the same
// time, so that they share what they read in the L2 cache. A block copies the first `cached` numbers of
// d[next(s, a)] to shared memory, unless its last use was the same row, and gathers columns there; other columns
// are read from global memory. Columns are in groups of 4 that are aligned in memory, so that the first group
// begins up to 3 columns before the row. `next` and `reward` are (4, A, padded): copy m has column t at m + t.
extern "C" __global__ void __launch_bounds__(SWEEP_THREADS, 1024 / SWEEP_THREADS)
sweep_rows(const T* __restrict__ available, const T* __restrict__ d, T* __restrict__ backup,
           const int* __restrict__ rows, const int* __restrict__ stages, const int* __restrict__ offsets,
           const int* __restrict__ slots, const int* __restrict__ uses, int count, int low,
           const state* __restrict__ next, const T* __restrict__ reward, const double* __restrict__ cost,
           T discount, T excess, int states, int actions, int padded, unsigned cached, bits* extremes) {
    extern __shared__ Quad space[];
    const wide pitch = states;
    RowCopy copy(space, count_bytes(VALUES_PER_QUAD - 1, cached));
    const int chunks = (states + 3 + CHUNK - 1) / CHUNK;
    const int group = blockIdx.x / chunks, groups = gridDim.x / chunks;
    const int first = int(blockIdx.x % chunks) * CHUNK + 4 * int(threadIdx.x);
    const int end = int(wide(count) * (group + 1) / groups);
    int held = -1;
    T max_increase = T(0), max_value = T(0);
    for (int entry = int(wide(count) * group / groups); entry < end; ++entry) {
        const int row = rows[entry], stage = stages[entry];
        const wide base = row * pitch;
        const int shift = int(base & 3);
        T top[QUADS][4];
#pragma unroll
        for (int k = 0; k < QUADS; ++k)
#pragma unroll
            for (int i = 0; i < 4; ++i) top[k][i] = T(0);
        if (!(stage & 1))
#pragma unroll
            for (int k = 0; k < QUADS; ++k)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int t = first + 4 * k * SWEEP_THREADS + i - shift;
                    if (t >= 0 && t < states) top[k][i] = backup[base + t];
                }
        for (int j = offsets[entry]; j < offsets[entry + 1]; ++j) {
            const int slot = slots[j];
            const wide from = slot * pitch;
            const int lead = find_lead(from);
            const T* __restrict__ following = available + from;
            if (slot != held) {
                __syncthreads();
                copy.bytes = count_bytes(lead, cached);
                copy.start(following - lead);
            }
            const wide at = (wide(shift) * actions + uses[j]) * padded;
            const T own_reward = reward[at + shift + low + row];
            const State4* __restrict__ columns = reinterpret_cast<const State4*>(next + at + first);
            const Value4* __restrict__ rewards = reinterpret_cast<const Value4*>(reward + at + first);
            State4 next_columns = columns[0];
            Value4 next_rewards = rewards[0];
            if (slot != held) {
                copy.wait();
                held = slot;
#if PREFETCH_BYTES > 0
                const wide after = slots[j + 1 < offsets[end] ? j + 1 : j] * pitch;
                copy.prefetch(available + after - find_lead(after));
#endif
            }
            const Quad* following_cached = reinterpret_cast<const Quad*>(reinterpret_cast<const T*>(space) + lead);
#pragma unroll
            for (int k = 0; k < QUADS; ++k) {
                const State4 column = next_columns;
                const Value4 other = next_rewards;
                if (k + 1 < QUADS) {
                    next_columns = columns[(k + 1) * SWEEP_THREADS];
                    next_rewards = rewards[(k + 1) * SWEEP_THREADS];
                }
                T value[4];
                gather(value, following_cached, following, column, cached);
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const T gap = fma_down(excess, value[i], fabs(own_reward - other.at[i]));
                    top[k][i] = maximum(top[k][i], fma_down(discount, value[i], gap));
                }
            }
        }
#pragma unroll
        for (int k = 0; k < QUADS; ++k) {
            const int t = first + 4 * k * SWEEP_THREADS - shift;
            Value4 old, result;
            // Four aligned columns, or single ones at the ends.
            const bool whole = t >= 0 && t + 4 <= states;
            const Quad* from = reinterpret_cast<const Quad*>(d + base + t);
            Quad* to = reinterpret_cast<Quad*>(backup + base + t);
            if (whole && (stage & 2)) {
#pragma unroll
                for (int i = 0; i < int(sizeof(T)) / 4; ++i) reinterpret_cast<Quad*>(&old)[i] = load_once(from + i);
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const bool inside = whole || (t + i >= 0 && t + i < states);
                result.at[i] = top[k][i];
                if (!inside || !(stage & 2)) continue;
                if (!whole) old.at[i] = d[base + t + i];
                const T value = add_down(top[k][i], COST(row, t + i));
                max_value = maximum(max_value, value);
                max_increase = maximum(max_increase, value - old.at[i]);
                result.at[i] = maximum(old.at[i], value);
            }
            if (whole) {
#pragma unroll
                for (int i = 0; i < int(sizeof(T)) / 4; ++i) store_once(to + i, reinterpret_cast<Quad*>(&result)[i]);
            } else {
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    if (t + i >= 0 && t + i < states) backup[base + t + i] = result.at[i];
            }
        }
    }
    write_extremes(reinterpret_cast<T*>(space), max_increase, max_value, extremes);
}

// The same for rows that are longer than shared memory. A block has the numbers of `width` columns of backup in
// shared memory. It visits these columns in the order of their successors, so that threads read the row of
// d[next(s, a)] in order. `sorted_next` and `sorted_reward`, (A, padded), are in that order, and `position` has
// the place of the column among those of the block; `reward`, (A, padded), is in the order of columns.
extern "C" __global__ void __launch_bounds__(SWEEP_THREADS, 1024 / SWEEP_THREADS)
sweep_long_rows(const T* __restrict__ available, const T* __restrict__ d, T* __restrict__ backup,
                const int* __restrict__ rows, const int* __restrict__ stages, const int* __restrict__ offsets,
                const int* __restrict__ slots, const int* __restrict__ uses, int count, int low,
                const state* __restrict__ sorted_next, const T* __restrict__ sorted_reward,
                const unsigned short* __restrict__ position, const T* __restrict__ reward,
                const double* __restrict__ cost, T discount, T excess, int states, int padded, int width,
                bits* extremes) {
    extern __shared__ Quad space[];
    T* top = reinterpret_cast<T*>(space);
    const wide pitch = states;
    const int chunks = (states + width - 1) / width, chunk = blockIdx.x % chunks, first = chunk * width;
    const int columns = first + width < states ? width : states - first;
    const int group = blockIdx.x / chunks, groups = gridDim.x / chunks;
    const int end = int(wide(count) * (group + 1) / groups);
    T max_increase = T(0), max_value = T(0);
    for (int entry = int(wide(count) * group / groups); entry < end; ++entry) {
        const int row = rows[entry], stage = stages[entry];
        const wide base = row * pitch + first;
        for (int i = threadIdx.x; i < columns; i += SWEEP_THREADS) top[i] = stage & 1 ? T(0) : backup[base + i];
        for (int j = offsets[entry]; j < offsets[entry + 1]; ++j) {
            const T* __restrict__ following = available + slots[j] * pitch;
            const T own_reward = reward[wide(uses[j]) * padded + low + row];
            const wide at = wide(uses[j]) * padded + first;
            __syncthreads();
            for (int i = threadIdx.x; i < columns; i += LONG_COLUMNS * SWEEP_THREADS) {
                T value[LONG_COLUMNS], other[LONG_COLUMNS];
                int place[LONG_COLUMNS];
#pragma unroll
                for (int k = 0; k < LONG_COLUMNS; ++k) {
                    const int v = i + k * SWEEP_THREADS;
                    const wide visit = at + (v < columns ? v : i);
                    value[k] = following[sorted_next[visit]];
                    other[k] = sorted_reward[visit];
                    place[k] = position[visit];
                }
#pragma unroll
                for (int k = 0; k < LONG_COLUMNS; ++k) {
                    const T gap = fma_down(excess, value[k], fabs(own_reward - other[k]));
                    const T updated = fma_down(discount, value[k], gap);
                    if (i + k * SWEEP_THREADS < columns) top[place[k]] = maximum(top[place[k]], updated);
                }
            }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < columns; i += SWEEP_THREADS) {
            T result = top[i];
            if (stage & 2) {
                const T old = d[base + i], value = add_down(result, COST(row, first + i));
                max_value = maximum(max_value, value);
                max_increase = maximum(max_increase, value - old);
                result = maximum(old, value);
            }
            backup[base + i] = result;
        }
    }
    write_extremes(reinterpret_cast<T*>(space), max_increase, max_value, extremes);
}

// The cost of steps: a number, or in float32, whose roundings would add up, a multiple of 1 / scale, where
// scale <= 2^32 / the largest sum of costs. Both are rounded down.
#if VALUE_BITS == 32
typedef unsigned Sum;
__device__ __forceinline__ Sum to_sum(double cost, double scale) { return Sum(cost * scale); }
__device__ __forceinline__ double to_cost(Sum sum, double scale) { return double(sum) / scale; }
__device__ __forceinline__ Sum add_weighted(Sum sum, Sum following, double weight) {
    return sum + Sum((bits(weight * 4294967296.0) * following) >> 32);
}
#else
typedef double Sum;
__device__ __forceinline__ Sum to_sum(double cost, double) { return cost; }
__device__ __forceinline__ double to_cost(Sum sum, double) { return sum; }
__device__ __forceinline__ Sum add_weighted(Sum sum, Sum following, double weight) {
    return __fma_rd(weight, following, sum);
}
#endif

// One step of the greedy policy, from a pair to the pair (row, row + offset); later, many steps: their
// discounted cost, and the pair in which they end. A pair of different states belongs to the row from which
// the other one is at most S/2 to the right, cyclically: that is the offset, and 0 is a pair of equal states,
// whose value is 0. Each device has (height, S/2) steps for the pairs of its rows with the offsets from 1 on.
struct PairSteps {
    Sum sum;
    state row, offset;
};

// The steps of a pair (row, offset) with offset > 0, from the device that has its row.
__device__ __forceinline__ PairSteps find_steps(const PairSteps* const* steps, int row, int offset, int height, int half) {
    return steps[row / height][wide(row % height) * half + offset - 1];
}

__device__ __forceinline__ T find_value(const T* const* d, int s, int t, int height, int states) {
    return d[s / height][wide(s % height) * states + t];
}

// `next` is the first copy for `sweep_rows`; `d` are the rows of every device.
extern "C" __global__ void select_steps(
    const T* const* __restrict__ d, PairSteps* __restrict__ steps, const state* __restrict__ next,
    const double* __restrict__ reward, const double* __restrict__ cost, double discount, double scale,
    int states, int height, int low, int count, int actions, int padded) {
    const int half = states / 2;
    const wide pitch = states;
    for (int row = blockIdx.y; row < count; row += gridDim.y)
        for (int offset = 1 + blockIdx.x * blockDim.x + threadIdx.x; offset <= half;
             offset += gridDim.x * blockDim.x) {
            const int s = low + row, t = s + offset < states ? s + offset : s + offset - states;
            double best = -1.0, immediate = 0.0;
            int x = s, y = s;
            for (int a = 0; a < actions; ++a) {
                const wide at = wide(a) * padded;
                const double gap = fabs(reward[wide(a) * states + s] - reward[wide(a) * states + t]);
                const int to_x = next[at + s], to_y = next[at + t];
                const double value = gap + discount * double(find_value(d, to_x, to_y, height, states));
                if (value > best) {
                    best = value;
                    immediate = gap;
                    x = to_x;
                    y = to_y;
                }
            }
            const int right = y >= x ? y - x : y - x + states;
            PairSteps step;
            step.sum = to_sum(immediate + COST(row, t), scale);
            step.row = state(right <= half ? x : y);
            step.offset = state(right <= half ? right : states - right);
            steps[wide(row) * half + offset - 1] = step;
        }
}

// Doubles the number of steps; weight = discount^k for the k steps so far.
extern "C" __global__ void compose_row_steps(
    const PairSteps* const* __restrict__ steps, const PairSteps* __restrict__ own, PairSteps* __restrict__ composed,
    double weight, int states, int height, int count) {
    const int half = states / 2;
    const wide pairs = wide(count) * half;
    for (wide i = wide(blockIdx.x) * blockDim.x + threadIdx.x; i < pairs; i += wide(gridDim.x) * blockDim.x) {
        PairSteps step = own[i];
        if (step.offset > 0) {
            const PairSteps following = find_steps(steps, step.row, step.offset, height, half);
            step.sum = add_weighted(step.sum, following.sum, weight);
            step.row = following.row;
            step.offset = following.offset;
        }
        composed[i] = step;
    }
}

// Raises the device's rows to the cost of the steps plus the value of the pair where they end. That is a
// lower bound, as the value of any policy is; `rounding_factor` removes what rounding may have added.
extern "C" __global__ void apply_step_values(
    const T* const* __restrict__ d, T* __restrict__ backup, const PairSteps* const* __restrict__ steps,
    double weight, double rounding_factor, double scale, int states, int height, int low, int count) {
    const int half = states / 2;
    for (int row = blockIdx.y; row < count; row += gridDim.y)
        for (int t = blockIdx.x * blockDim.x + threadIdx.x; t < states; t += gridDim.x * blockDim.x) {
            const int s = low + row, right = t >= s ? t - s : t - s + states;
            const T old = find_value(d, s, t, height, states);
            T value = T(0);
            if (right > 0) {
                const PairSteps step = right <= half ? find_steps(steps, s, right, height, half)
                                                : find_steps(steps, t, states - right, height, half);
                double end = 0.0;
                if (step.offset > 0) {
                    const int last = step.row + step.offset;
                    end = find_value(d, step.row, last < states ? last : last - states, height, states);
                }
                const double total = to_cost(step.sum, scale) + weight * end;
                value = round_down(rounding_factor * total, T(0));
            }
            backup[wide(row) * states + t] = maximum(old, value);
        }
}

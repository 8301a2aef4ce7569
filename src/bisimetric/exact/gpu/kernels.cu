// Kernels on a whole distance matrix d (S x S), symmetric, with 0 on its diagonal.
//
// Rows are `pitch` numbers apart, a multiple of 32. Compiled for one problem with
//   VALUE_TYPE       float or double, the type of the matrix
//   STATE_BITS       16 or 32, the bits of a state id
//   SWEEP_THREADS    threads per block of `sweep`
//   QUADS            groups of 4 columns in the registers of each of them
//   TILE_SIZE        side of the tiles in which matrices are transposed
//   LEVEL_TILE_ROWS  rows of the tiles of a level
//   HAS_COST         whether a matrix `cost` is added to the differences of rewards
// A pair of states belongs to the row from which the other is at most S/2 to the right, cyclically:
// each row then computes equally many pairs, and `mirror` copies them across the diagonal.

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

// Copies a row into shared memory asynchronously; `wait_for_copy` waits for it.
__device__ __forceinline__ void copy_row_async(Quad* target, const Quad* from, int count) {
#ifdef __CUDA_ARCH__
    unsigned position = static_cast<unsigned>(__cvta_generic_to_shared(target)) + 16 * threadIdx.x;
#pragma unroll 4
    for (int i = threadIdx.x; i < count; i += SWEEP_THREADS, position += 16 * SWEEP_THREADS)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(position), "l"(from + i));
    asm volatile("cp.async.commit_group;");
#else
    for (int i = threadIdx.x; i < count; i += SWEEP_THREADS) target[i] = from[i];
#endif
}

__device__ __forceinline__ void wait_for_copy() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_group 0;" ::: "memory");
#endif
    __syncthreads();
}

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

// backup = max(d, F(d)),
// F(d)(s, t) = cost(s, t) + max_a |R(s, a) - R(t, a)| + discount * d(next(s, a), next(t, a))
//
// One block computes the row of s: the first `cached` numbers of d[next(s, a)] are in shared memory, where
// columns are gathered; the rest is read from global memory. Threads take four columns at a time. `next`
// and `reward` repeat cyclically, `padded` numbers per action. The discount is a sum of two numbers.
// `increase` is the largest F(d) - d of each row.
extern "C" __global__ void __launch_bounds__(SWEEP_THREADS)
sweep(const T* __restrict__ d, T* __restrict__ backup, const state* __restrict__ next,
      const T* __restrict__ reward, const double* __restrict__ cost, T discount, T excess, int states,
      wide pitch, int actions, int padded, unsigned cached, T* increase) {
    extern __shared__ Quad space[];
    const T* row_cached = reinterpret_cast<const T*>(space);
    const int half = states / 2;
    for (int s = blockIdx.x; s < states; s += gridDim.x) {
        T max_increase = T(0);
        for (int start = (s + 1) & ~3; start <= s + half; start += 4 * QUADS * SWEEP_THREADS) {
            const int first = start + 4 * threadIdx.x;
            T top[QUADS][4];
#pragma unroll
            for (int k = 0; k < QUADS; ++k)
#pragma unroll
                for (int i = 0; i < 4; ++i) top[k][i] = T(0);
            for (int a = 0; a < actions; ++a) {
                const wide at = wide(a) * padded;
                const T* __restrict__ row = d + next[at + s] * pitch;
                copy_row_async(space, reinterpret_cast<const Quad*>(row), cached * sizeof(T) / 16);
                const T own_reward = reward[at + s];
                const State4* __restrict__ columns = reinterpret_cast<const State4*>(next + at + first);
                const Value4* __restrict__ rewards = reinterpret_cast<const Value4*>(reward + at + first);
                State4 next_columns = columns[0];
                Value4 next_rewards = rewards[0];
                wait_for_copy();
#pragma unroll
                for (int k = 0; k < QUADS; ++k) {
                    const State4 column = next_columns;
                    const Value4 other = next_rewards;
                    if (k + 1 < QUADS) {
                        next_columns = columns[(k + 1) * SWEEP_THREADS];
                        next_rewards = rewards[(k + 1) * SWEEP_THREADS];
                    }
                    T next_value[4];
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const unsigned at_most = cached - 1;
                        next_value[i] = row_cached[column.at[i] < cached ? column.at[i] : at_most];
                    }
#pragma unroll
                    for (int i = 0; i < 4; ++i) load_uncached(next_value[i], row, column.at[i], cached);
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const T gap = fma_down(excess, next_value[i], fabs(own_reward - other.at[i]));
                        top[k][i] = maximum(top[k][i], fma_down(discount, next_value[i], gap));
                    }
                }
                __syncthreads();
            }
#pragma unroll
            for (int k = 0; k < QUADS; ++k)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int position = first + 4 * k * SWEEP_THREADS + i;
                    if (position <= s || position > s + half) continue;
                    const int t = position < states ? position : position - states;
                    const T old = d[s * pitch + t], value = add_down(top[k][i], COST(s, t));
                    backup[s * pitch + t] = maximum(old, value);
                    max_increase = maximum(max_increase, value - old);
                }
        }
        T* maxima = reinterpret_cast<T*>(space);
        maxima[threadIdx.x] = max_increase;
        for (int step = 512; step > 0; step /= 2) {
            __syncthreads();
            if (threadIdx.x < step && threadIdx.x + step < SWEEP_THREADS)
                maxima[threadIdx.x] = maximum(maxima[threadIdx.x], maxima[threadIdx.x + step]);
        }
        if (threadIdx.x == 0) increase[s] = maxima[0];
        __syncthreads();
    }
}

// Copies the computed half of a matrix across the diagonal, in tiles of TILE_SIZE x TILE_SIZE.
extern "C" __global__ void mirror(T* matrix, int states, wide pitch) {
    __shared__ T tile[TILE_SIZE][TILE_SIZE + 1];
    const int half = states / 2, i0 = TILE_SIZE * blockIdx.y, j0 = TILE_SIZE * blockIdx.x;
    if (i0 > j0) return;
    const bool upper = i0 < j0 && j0 + TILE_SIZE - 1 - i0 <= half, lower = j0 - i0 - TILE_SIZE + 1 > half;
    if (!upper && !lower) {
        for (int k = threadIdx.x; k < TILE_SIZE * TILE_SIZE; k += blockDim.x) {
            const int i = i0 + k / TILE_SIZE, j = j0 + k % TILE_SIZE;
            if (i >= j || j >= states) continue;
            if (j - i <= half) matrix[j * pitch + i] = matrix[i * pitch + j];
            else matrix[i * pitch + j] = matrix[j * pitch + i];
        }
        return;
    }
    const int from = upper ? i0 : j0, to = upper ? j0 : i0;
#pragma unroll 8
    for (int k = threadIdx.x; k < TILE_SIZE * TILE_SIZE; k += blockDim.x) {
        const int y = k / TILE_SIZE, x = k % TILE_SIZE;
        if (from + y < states && to + x < states) tile[y][x] = matrix[(from + y) * pitch + to + x];
    }
    __syncthreads();
#pragma unroll 8
    for (int k = threadIdx.x; k < TILE_SIZE * TILE_SIZE; k += blockDim.x) {
        const int y = k / TILE_SIZE, x = k % TILE_SIZE;
        if (to + y < states && from + x < states) matrix[(to + y) * pitch + from + x] = tile[x][y];
    }
}

// One step of the greedy policy, for the pair of `row` and the state that is `offset` to the right of it;
// later, many steps: their discounted cost, and the pair in which they end.
struct Step {
    double cost;
    state row, offset;
};

extern "C" __global__ void select_actions(
    const T* __restrict__ d, Step* __restrict__ steps, const state* __restrict__ next,
    const double* __restrict__ reward, const double* __restrict__ cost, double discount, int states,
    wide pitch, int actions, int padded) {
    const int half = states / 2;
    for (int s = blockIdx.y; s < states; s += gridDim.y)
        for (int offset = blockIdx.x * blockDim.x + threadIdx.x; offset <= half;
             offset += gridDim.x * blockDim.x) {
            double best = -1.0, immediate = 0.0;
            int x = s, y = s;
            for (int a = 0; a < actions && offset > 0; ++a) {
                const wide at = wide(a) * padded + s;
                const double gap = fabs(reward[at] - reward[at + offset]);
                const int to_x = next[at], to_y = next[at + offset];
                const double value = gap + discount * double(d[to_x * pitch + to_y]);
                if (value > best) {
                    best = value;
                    immediate = gap;
                    x = to_x;
                    y = to_y;
                }
            }
            const int right = y >= x ? y - x : y - x + states;
            Step step;
            step.cost = offset > 0 ? immediate + COST(s, s + offset < states ? s + offset : s + offset - states) : 0.0;
            step.row = state(right <= half ? x : y);
            step.offset = state(right <= half ? right : states - right);
            steps[wide(s) * (half + 1) + offset] = step;
        }
}

// Doubles the number of steps; weight = discount^k for the k steps so far.
extern "C" __global__ void compose_steps(
    const Step* __restrict__ steps, Step* __restrict__ composed, double weight, int states) {
    const wide width = states / 2 + 1, count = states * width;
    for (wide i = wide(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
         i += wide(gridDim.x) * blockDim.x) {
        Step step = steps[i];
        const Step following = steps[step.row * width + step.offset];
        step.cost += weight * following.cost;
        step.row = following.row;
        step.offset = following.offset;
        composed[i] = step;
    }
}

// Raises the matrix to the cost of the steps plus the value of the pair where they end. That is a lower
// bound, as the value of any policy is; `rounding_factor` removes what rounding may have added.
extern "C" __global__ void apply_policy_value(
    const T* __restrict__ d, T* __restrict__ backup, const Step* __restrict__ steps, double weight,
    double rounding_factor, int states, wide pitch) {
    const int half = states / 2;
    for (int s = blockIdx.y; s < states; s += gridDim.y)
        for (int offset = blockIdx.x * blockDim.x + threadIdx.x; offset <= half;
             offset += gridDim.x * blockDim.x) {
            const int t = s + offset < states ? s + offset : s + offset - states;
            const Step step = steps[wide(s) * (half + 1) + offset];
            const int last = step.row + step.offset;
            const double end_value = d[step.row * pitch + (last < states ? last : last - states)];
            const T value = round_down(rounding_factor * (step.cost + weight * end_value), T(0));
            backup[s * pitch + t] = maximum(d[s * pitch + t], value);
        }
}

// d(s, t) = |R(s) - R(t)| + cost(s, t) + discount * d(next(s), next(t)) for the rows low <= s < high and
// all t < high, and its transpose, where all that is read has been written before; in tiles of
// LEVEL_TILE_ROWS x TILE_SIZE.
extern "C" __global__ void fill_level(
    T* d, const state* __restrict__ next, const T* __restrict__ reward,
    const double* __restrict__ cost, T discount, T excess, wide pitch, int low, int high) {
    __shared__ T tile[LEVEL_TILE_ROWS][TILE_SIZE + 1];
    const int i0 = low + LEVEL_TILE_ROWS * blockIdx.y, j0 = TILE_SIZE * blockIdx.x;
#pragma unroll 4
    for (int k = threadIdx.x; k < LEVEL_TILE_ROWS * TILE_SIZE; k += blockDim.x) {
        const int y = k / TILE_SIZE, x = k % TILE_SIZE, i = i0 + y, j = j0 + x;
        if (i >= high || j >= high) continue;
        const T next_value = d[next[i] * pitch + next[j]];
        T value = fma(discount, next_value, fma(excess, next_value, fabs(reward[i] - reward[j])));
        if (HAS_COST) value = T(double(value) + COST(i, j));
        d[i * pitch + j] = value;
        tile[y][x] = value;
    }
    if (j0 >= low) return;
    __syncthreads();
#pragma unroll 4
    for (int k = threadIdx.x; k < LEVEL_TILE_ROWS * TILE_SIZE; k += blockDim.x) {
        const int y = k / LEVEL_TILE_ROWS, x = k % LEVEL_TILE_ROWS;
        if (i0 + x < high && j0 + y < low) d[(j0 + y) * pitch + i0 + x] = tile[x][y];
    }
}

// backup(s, t) = d(s, t) + weight * d(successor(s), successor(t)) for s, t < count.
extern "C" __global__ void double_horizon(
    const T* __restrict__ d, T* __restrict__ backup, const state* __restrict__ successor,
    double weight, wide pitch, int count) {
    for (int s = blockIdx.y; s < count; s += gridDim.y)
        for (int t = blockIdx.x * blockDim.x + threadIdx.x; t < count; t += gridDim.x * blockDim.x)
            backup[s * pitch + t] =
                T(d[s * pitch + t] + weight * double(d[successor[s] * pitch + successor[t]]));
}

// out(s, t) = d(position(s), position(t))
extern "C" __global__ void reorder(
    const T* __restrict__ d, T* __restrict__ out, const state* __restrict__ position, wide pitch,
    int states) {
    for (int s = blockIdx.y; s < states; s += gridDim.y)
        for (int t = blockIdx.x * blockDim.x + threadIdx.x; t < states;
             t += gridDim.x * blockDim.x)
            out[s * pitch + t] = d[position[s] * pitch + position[t]];
}

// The largest |F(d) - d| and F(d), in double precision whatever the type of the matrix.
extern "C" __global__ void compute_residual(
    const T* __restrict__ d, const state* __restrict__ next, const double* __restrict__ reward,
    const double* __restrict__ cost, double discount, int states, wide pitch, int actions, int padded,
    bits* residual, bits* largest) {
    __shared__ double residuals[256], values[256];
    double residual_max = 0.0, top = 0.0;
    for (int s = blockIdx.x; s < states; s += gridDim.x)
        for (int t = threadIdx.x; t < states; t += blockDim.x) {
            double best = 0.0;
            for (int a = 0; a < actions; ++a) {
                const wide at = wide(a) * padded;
                const double value = fabs(reward[at + s] - reward[at + t]) +
                                     discount * double(d[next[at + s] * pitch + next[at + t]]);
                best = value > best ? value : best;
            }
            best += COST(s, t);
            const double difference = fabs(best - double(d[s * pitch + t]));
            // NaN counts as an infinite residual.
            residual_max = difference <= residual_max ? residual_max : difference == difference ? difference : __longlong_as_double(0x7ff0000000000000);
            top = best > top ? best : top;
        }
    residuals[threadIdx.x] = residual_max;
    values[threadIdx.x] = top;
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

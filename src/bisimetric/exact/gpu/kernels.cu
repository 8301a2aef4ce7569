// Kernels on a whole table d of S x S distances, symmetric, with 0 on its diagonal.
//
// Rows are `pitch` numbers apart, a multiple of 32. Compiled for one table with
//   NUMBER   float or double, what the table holds
//   WORD     16 or 32, bits of a state's number
//   THREADS  threads of a block of `sweep`
//   FOURS    times 4 columns that each of them has in its registers
//   SIDE     of the tiles in which tables are turned over
//   LOW      rows of those of a level
// A pair of states is in the hands of the row from which the other is at most S/2 to the right,
// going round at the end: each row then has equally many, and `mirror` copies them across.

typedef NUMBER T;
#if WORD == 16
typedef unsigned short state;
#else
typedef unsigned state;
#endif
typedef long long wide;
typedef unsigned long long bits;

struct alignas(16) Quad { unsigned word[4]; };
struct alignas(4 * sizeof(state)) Four { state at[4]; };
struct alignas(16) Paid { T at[4]; };

__device__ __forceinline__ T above(T a, T b) { return a > b ? a : b; }

// a * b + c and a number in the table's type, rounded down: lower bounds stay lower bounds, and do not
// creep up by roundings.
__device__ __forceinline__ float down(float a, float b, float c) { return __fmaf_rd(a, b, c); }
__device__ __forceinline__ double down(double a, double b, double c) { return __fma_rd(a, b, c); }
__device__ __forceinline__ float below(double value, float) { return __double2float_rd(value); }
__device__ __forceinline__ double below(double value, double) { return value; }

// A row on its way into shared memory; `arrived` waits for it.
__device__ __forceinline__ void bring(Quad* to, const Quad* from, int count) {
#ifdef __CUDA_ARCH__
    unsigned place = static_cast<unsigned>(__cvta_generic_to_shared(to)) + 16 * threadIdx.x;
#pragma unroll 4
    for (int i = threadIdx.x; i < count; i += THREADS, place += 16 * THREADS)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from + i));
    asm volatile("cp.async.commit_group;");
#else
    for (int i = threadIdx.x; i < count; i += THREADS) to[i] = from[i];
#endif
}

__device__ __forceinline__ void arrived() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_group 0;" ::: "memory");
#endif
    __syncthreads();
}

#ifdef __CUDA_ARCH__
// A read where a column is beyond those held; as a branch, reads would wait for each other.
__device__ __forceinline__ void beyond(float& value, const float* row, unsigned column, unsigned held) {
    asm("{ .reg .pred p; setp.ge.u32 p, %2, %3; @p ld.global.nc.f32 %0, [%1]; }"
        : "+f"(value) : "l"(row + column), "r"(column), "r"(held));
}
__device__ __forceinline__ void beyond(double& value, const double* row, unsigned column, unsigned held) {
    asm("{ .reg .pred p; setp.ge.u32 p, %2, %3; @p ld.global.nc.f64 %0, [%1]; }"
        : "+d"(value) : "l"(row + column), "r"(column), "r"(held));
}
#else
__device__ __forceinline__ void beyond(T& value, const T* row, unsigned column, unsigned held) {
    if (column >= held) value = row[column];
}
#endif

// fresh = max(d, F(d)), F(d)(s, t) = max_a |R(s, a) - R(t, a)| + discount * d(next(s, a), next(t, a))
//
// One block makes a row of s: the first `held` numbers of d[next(s, a)] stand in shared memory, where
// columns are gathered; the rest is read where it is. Threads take four columns at a time. `next` and
// `reward` go round once more, `reach` numbers an action. The discount is a sum of two numbers. `rise` is
// the largest F(d) - d of each row.
extern "C" __global__ void __launch_bounds__(THREADS)
sweep(const T* __restrict__ d, T* __restrict__ fresh, const state* __restrict__ next,
      const T* __restrict__ reward, T discount, T excess, int states, wide pitch, int actions,
      int reach, unsigned held, T* rise) {
    extern __shared__ Quad space[];
    const T* row_held = reinterpret_cast<const T*>(space);
    const int half = states / 2;
    for (int s = blockIdx.x; s < states; s += gridDim.x) {
        T highest = T(0);
        for (int start = (s + 1) & ~3; start <= s + half; start += 4 * FOURS * THREADS) {
            const int first = start + 4 * threadIdx.x;
            T top[FOURS][4];
#pragma unroll
            for (int k = 0; k < FOURS; ++k)
#pragma unroll
                for (int i = 0; i < 4; ++i) top[k][i] = T(0);
            for (int a = 0; a < actions; ++a) {
                const wide at = wide(a) * reach;
                const T* __restrict__ row = d + next[at + s] * pitch;
                bring(space, reinterpret_cast<const Quad*>(row), held * sizeof(T) / 16);
                const T paid = reward[at + s];
                const Four* __restrict__ to = reinterpret_cast<const Four*>(next + at + first);
                const Paid* __restrict__ pays = reinterpret_cast<const Paid*>(reward + at + first);
                Four coming = to[0];
                Paid paying = pays[0];
                arrived();
#pragma unroll
                for (int k = 0; k < FOURS; ++k) {
                    const Four column = coming;
                    const Paid other = paying;
                    if (k + 1 < FOURS) {
                        coming = to[(k + 1) * THREADS];
                        paying = pays[(k + 1) * THREADS];
                    }
                    T ahead[4];
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const unsigned at_most = held - 1;
                        ahead[i] = row_held[column.at[i] < held ? column.at[i] : at_most];
                    }
#pragma unroll
                    for (int i = 0; i < 4; ++i) beyond(ahead[i], row, column.at[i], held);
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const T gap = down(excess, ahead[i], fabs(paid - other.at[i]));
                        top[k][i] = above(top[k][i], down(discount, ahead[i], gap));
                    }
                }
                __syncthreads();
            }
#pragma unroll
            for (int k = 0; k < FOURS; ++k)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int place = first + 4 * k * THREADS + i;
                    if (place <= s || place > s + half) continue;
                    const int t = place < states ? place : place - states;
                    const T old = d[s * pitch + t];
                    fresh[s * pitch + t] = above(old, top[k][i]);
                    highest = above(highest, top[k][i] - old);
                }
        }
        T* heights = reinterpret_cast<T*>(space);
        heights[threadIdx.x] = highest;
        for (int step = 512; step > 0; step /= 2) {
            __syncthreads();
            if (threadIdx.x < step && threadIdx.x + step < THREADS)
                heights[threadIdx.x] = above(heights[threadIdx.x], heights[threadIdx.x + step]);
        }
        if (threadIdx.x == 0) rise[s] = heights[0];
        __syncthreads();
    }
}

// The other half of a table from the one that rows have in hand, in tiles of SIDE x SIDE.
extern "C" __global__ void mirror(T* table, int states, wide pitch) {
    __shared__ T tile[SIDE][SIDE + 1];
    const int half = states / 2, i0 = SIDE * blockIdx.y, j0 = SIDE * blockIdx.x;
    if (i0 > j0) return;
    const bool upper = i0 < j0 && j0 + SIDE - 1 - i0 <= half, lower = j0 - i0 - SIDE + 1 > half;
    if (!upper && !lower) {
        for (int k = threadIdx.x; k < SIDE * SIDE; k += blockDim.x) {
            const int i = i0 + k / SIDE, j = j0 + k % SIDE;
            if (i >= j || j >= states) continue;
            if (j - i <= half) table[j * pitch + i] = table[i * pitch + j];
            else table[i * pitch + j] = table[j * pitch + i];
        }
        return;
    }
    const int from = upper ? i0 : j0, to = upper ? j0 : i0;
#pragma unroll 8
    for (int k = threadIdx.x; k < SIDE * SIDE; k += blockDim.x) {
        const int y = k / SIDE, x = k % SIDE;
        if (from + y < states && to + x < states) tile[y][x] = table[(from + y) * pitch + to + x];
    }
    __syncthreads();
#pragma unroll 8
    for (int k = threadIdx.x; k < SIDE * SIDE; k += blockDim.x) {
        const int y = k / SIDE, x = k % SIDE;
        if (to + y < states && from + x < states) table[(to + y) * pitch + from + x] = tile[x][y];
    }
}

// A step of the policy that takes the best actions by the table, for the pair of `row` and the state
// that is `over` to the right of it; later, many steps: what they are worth, and where they end.
struct Step {
    double worth;
    state row, over;
};

extern "C" __global__ void chosen(
    const T* __restrict__ d, Step* __restrict__ steps, const state* __restrict__ next,
    const double* __restrict__ reward, double discount, int states, wide pitch, int actions,
    int reach) {
    const int half = states / 2;
    for (int s = blockIdx.y; s < states; s += gridDim.y)
        for (int over = blockIdx.x * blockDim.x + threadIdx.x; over <= half;
             over += gridDim.x * blockDim.x) {
            double best = -1.0, worth = 0.0;
            int x = s, y = s;
            for (int a = 0; a < actions && over > 0; ++a) {
                const wide at = wide(a) * reach + s;
                const double gap = fabs(reward[at] - reward[at + over]);
                const int to_x = next[at], to_y = next[at + over];
                const double value = gap + discount * double(d[to_x * pitch + to_y]);
                if (value > best) {
                    best = value;
                    worth = gap;
                    x = to_x;
                    y = to_y;
                }
            }
            const int right = y >= x ? y - x : y - x + states;
            Step step;
            step.worth = worth;
            step.row = state(right <= half ? x : y);
            step.over = state(right <= half ? right : states - right);
            steps[wide(s) * (half + 1) + over] = step;
        }
}

// Twice as many steps: what they are worth, weight = discount^k for the k there were.
extern "C" __global__ void jumped(
    const Step* __restrict__ steps, Step* __restrict__ further, double weight, int states) {
    const wide width = states / 2 + 1, count = states * width;
    for (wide i = wide(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
         i += wide(gridDim.x) * blockDim.x) {
        Step step = steps[i];
        const Step then = steps[step.row * width + step.over];
        step.worth += weight * then.worth;
        step.row = then.row;
        step.over = then.over;
        further[i] = step;
    }
}

// The table, raised to what the steps are worth, and the table itself where they end. That is a lower
// bound, as any policy's value is; `safe` takes off what rounding may have added.
extern "C" __global__ void settled(
    const T* __restrict__ d, T* __restrict__ fresh, const Step* __restrict__ steps, double weight,
    double safe, int states, wide pitch) {
    const int half = states / 2;
    for (int s = blockIdx.y; s < states; s += gridDim.y)
        for (int over = blockIdx.x * blockDim.x + threadIdx.x; over <= half;
             over += gridDim.x * blockDim.x) {
            const int t = s + over < states ? s + over : s + over - states;
            const Step step = steps[wide(s) * (half + 1) + over];
            const int last = step.row + step.over;
            const double end = d[step.row * pitch + (last < states ? last : last - states)];
            const T worth = below(safe * (step.worth + weight * end), T(0));
            fresh[s * pitch + t] = above(d[s * pitch + t], worth);
        }
}

// d(s, t) = |R(s) - R(t)| + discount * d(next(s), next(t)) for the rows low <= s < high and all t < high,
// and its mirror image, where all that is read has been written before; in tiles of LOW x SIDE.
extern "C" __global__ void level(
    T* d, const state* __restrict__ next, const T* __restrict__ reward, T discount, T excess,
    wide pitch, int low, int high) {
    __shared__ T tile[LOW][SIDE + 1];
    const int i0 = low + LOW * blockIdx.y, j0 = SIDE * blockIdx.x;
#pragma unroll 4
    for (int k = threadIdx.x; k < LOW * SIDE; k += blockDim.x) {
        const int y = k / SIDE, x = k % SIDE, i = i0 + y, j = j0 + x;
        if (i >= high || j >= high) continue;
        const T ahead = d[next[i] * pitch + next[j]];
        const T value = fma(discount, ahead, fma(excess, ahead, fabs(reward[i] - reward[j])));
        d[i * pitch + j] = value;
        tile[y][x] = value;
    }
    if (j0 >= low) return;
    __syncthreads();
#pragma unroll 4
    for (int k = threadIdx.x; k < LOW * SIDE; k += blockDim.x) {
        const int y = k / LOW, x = k % LOW;
        if (i0 + x < high && j0 + y < low) d[(j0 + y) * pitch + i0 + x] = tile[x][y];
    }
}

// fresh(s, t) = d(s, t) + weight * d(ahead(s), ahead(t)) for s, t < count.
extern "C" __global__ void doubled(
    const T* __restrict__ d, T* __restrict__ fresh, const state* __restrict__ ahead,
    double weight, wide pitch, int count) {
    for (int s = blockIdx.y; s < count; s += gridDim.y)
        for (int t = blockIdx.x * blockDim.x + threadIdx.x; t < count; t += gridDim.x * blockDim.x)
            fresh[s * pitch + t] =
                T(d[s * pitch + t] + weight * double(d[ahead[s] * pitch + ahead[t]]));
}

// out(s, t) = d(place(s), place(t))
extern "C" __global__ void placed(
    const T* __restrict__ d, T* __restrict__ out, const state* __restrict__ place, wide pitch,
    int states) {
    for (int s = blockIdx.y; s < states; s += gridDim.y)
        for (int t = blockIdx.x * blockDim.x + threadIdx.x; t < states;
             t += gridDim.x * blockDim.x)
            out[s * pitch + t] = d[place[s] * pitch + place[t]];
}

// The proof: the largest |F(d) - d| and F(d), in double precision whatever the table holds.
extern "C" __global__ void prove(
    const T* __restrict__ d, const state* __restrict__ next, const double* __restrict__ reward,
    double discount, int states, wide pitch, int actions, int reach, bits* residual,
    bits* largest) {
    __shared__ double worst[256], most[256];
    double apart = 0.0, top = 0.0;
    for (int s = blockIdx.x; s < states; s += gridDim.x)
        for (int t = threadIdx.x; t < states; t += blockDim.x) {
            double best = 0.0;
            for (int a = 0; a < actions; ++a) {
                const wide at = wide(a) * reach;
                const double value = fabs(reward[at + s] - reward[at + t]) +
                                     discount * double(d[next[at + s] * pitch + next[at + t]]);
                best = value > best ? value : best;
            }
            const double off = fabs(best - double(d[s * pitch + t]));
            // A number that is none counts as infinitely far off.
            apart = off <= apart ? apart : off == off ? off : __longlong_as_double(0x7ff0000000000000);
            top = best > top ? best : top;
        }
    worst[threadIdx.x] = apart;
    most[threadIdx.x] = top;
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) {
            worst[threadIdx.x] = fmax(worst[threadIdx.x], worst[threadIdx.x + step]);
            most[threadIdx.x] = fmax(most[threadIdx.x], most[threadIdx.x + step]);
        }
    }
    if (threadIdx.x == 0) {
        atomicMax(residual, bits(__double_as_longlong(worst[0])));
        atomicMax(largest, bits(__double_as_longlong(most[0])));
    }
}

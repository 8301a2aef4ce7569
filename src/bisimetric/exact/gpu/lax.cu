// Kernels of d_lax on a whole distance matrix d (S x S), symmetric, with 0 on its diagonal; they follow
// rows.cu.
//
//   F(d)(s, t) = cost(s, t) + max(max_a min_b delta(a, b), max_b min_a delta(a, b)),
//   delta(a, b) = |R(s, a) - R(t, b)| + discount * d(next(s, a), next(t, b)),
//
// or `diameter`, if s and t are of different classes. Compiled with the macros of rows.cu, and
//   GROUPS           groups of 16 bytes of columns in the registers of each thread of `sweep_lax`
//   HAS_CLASSES      whether states may be of different classes

#if HAS_CLASSES
#define ARE_COMPARABLE(s, t) (classes[s] == classes[t])
#else
#define ARE_COMPARABLE(s, t) true
#endif

__device__ __forceinline__ T minimum(T a, T b) { return a < b ? a : b; }

// backup(s, t) = max_a min_b delta(a, b), one of the two directions, for all s and t; `combine_directions`
// follows. Blocks, rows and `visits` are those of `sweep` in kernels.cu.
extern "C" __global__ void __launch_bounds__(SWEEP_THREADS, 1)
sweep_lax(const T* __restrict__ d, T* __restrict__ backup, const state* __restrict__ next,
          const T* __restrict__ reward, const int* __restrict__ order, const Visit* __restrict__ visits,
          T discount, T excess, int states, wide pitch, int actions, int padded, unsigned cached) {
    extern __shared__ Quad space[];
    const int part_columns = WIDTH * GROUPS * SWEEP_THREADS, parts = (states + part_columns - 1) / part_columns;
    RowWalk walk(space, cached, d, visits, states, pitch, actions, parts);
    for (int v = walk.low; v < walk.high; ++v) {
        const int s = order[v];
        for (int part = 0; part < parts; ++part) {
            const int left = part * part_columns + WIDTH * threadIdx.x;
            T top[GROUPS][WIDTH];
#pragma unroll
            for (int k = 0; k < GROUPS; ++k)
#pragma unroll
                for (int i = 0; i < WIDTH; ++i) top[k][i] = T(0);
            for (int j = 0; j < actions; ++j) {
                const T own_reward = reward[wide(walk.enter(v, part, j)) * padded + s];
                const T* __restrict__ row = walk.wait();
#pragma unroll
                for (int k = 0; k < GROUPS; ++k) {
                    const int position = left + k * WIDTH * SWEEP_THREADS;
                    if (position >= states) continue;
                    T lowest[WIDTH];
#pragma unroll
                    for (int i = 0; i < WIDTH; ++i) lowest[i] = T(INFINITE);
#pragma unroll 2
                    for (int b = 0; b < actions; ++b) {
                        const wide at = wide(b) * padded + position;
                        const StateGroup column = *reinterpret_cast<const StateGroup*>(next + at);
                        const ValueGroup other = *reinterpret_cast<const ValueGroup*>(reward + at);
                        T next_value[WIDTH];
                        gather(next_value, space, row, column, cached);
#pragma unroll
                        for (int i = 0; i < WIDTH; ++i) {
                            const T gap = fma(excess, next_value[i], fabs(own_reward - other.at[i]));
                            lowest[i] = minimum(lowest[i], fma(discount, next_value[i], gap));
                        }
                    }
#pragma unroll
                    for (int i = 0; i < WIDTH; ++i) top[k][i] = maximum(top[k][i], lowest[i]);
                }
                walk.leave();
            }
#pragma unroll
            for (int k = 0; k < GROUPS; ++k) {
                const int position = left + k * WIDTH * SWEEP_THREADS;
                ValueGroup value;
#pragma unroll
                for (int i = 0; i < WIDTH; ++i) value.at[i] = top[k][i];
                // The last group may end in the padding of the row.
                if (position < states)
                    store_once(reinterpret_cast<Quad*>(backup + s * pitch + position), reinterpret_cast<Quad&>(value));
            }
        }
    }
}

// backup = F(d), from one direction of each pair; the largest |F(d) - d| and F(d).
extern "C" __global__ void combine_directions(
    const T* __restrict__ d, T* __restrict__ backup, const double* __restrict__ cost,
    const int* __restrict__ classes, double diameter, int states, wide pitch, bits* residual, bits* largest) {
    __shared__ T tile[TILE_SIZE][TILE_SIZE + 1];
    __shared__ double residuals[256], values[256];
    const TilePair pair;
    if (pair.is_repeated) return;
    const int from = pair.from, to = pair.to;
#pragma unroll 4
    for (int k = threadIdx.x; k < TilePair::COUNT; k += blockDim.x) {
        const int y = TilePair::row(k), x = TilePair::column(k);
        if (to + y >= states || from + x >= states) continue;
        const ValueGroup group = *reinterpret_cast<const ValueGroup*>(backup + (to + y) * pitch + from + x);
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) tile[y][x + i] = group.at[i];
    }
    __syncthreads();
    double residual_max = 0.0, top = 0.0;
#pragma unroll 2
    for (int k = threadIdx.x; k < TilePair::COUNT; k += blockDim.x) {
        const int y = TilePair::row(k), x = TilePair::column(k), s = from + y;
        if (s >= states || to + x >= states) continue;
        const wide at = s * pitch + to + x;
        const ValueGroup old = *reinterpret_cast<const ValueGroup*>(d + at);
        ValueGroup value = *reinterpret_cast<const ValueGroup*>(backup + at);
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) {
            const int t = to + x + i;
            if (t >= states) continue;
            value.at[i] = maximum(value.at[i], tile[x + i][y]);
            if (HAS_COST) value.at[i] = T(double(value.at[i]) + COST(s, t));
            if (!ARE_COMPARABLE(s, t)) value.at[i] = T(diameter);
            if (s == t) value.at[i] = T(0);
            tile[x + i][y] = value.at[i];
            residual_max = fmax(residual_max, fabs(double(value.at[i]) - double(old.at[i])));
            top = fmax(top, double(value.at[i]));
        }
        *reinterpret_cast<ValueGroup*>(backup + at) = value;
    }
    residuals[threadIdx.x] = residual_max;
    values[threadIdx.x] = top;
    __syncthreads();
#pragma unroll 4
    for (int k = threadIdx.x; from != to && k < TilePair::COUNT; k += blockDim.x) {
        const int y = TilePair::row(k), x = TilePair::column(k);
        if (to + y >= states || from + x >= states) continue;
        ValueGroup group;
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) group.at[i] = tile[y][x + i];
        *reinterpret_cast<ValueGroup*>(backup + (to + y) * pitch + from + x) = group;
    }
    write_maxima(residuals, values, residual, largest);
}

// The choices of both players that attain F(d)(s, t) without the cost, in double precision.
struct Choice {
    double value, gap;
    int x, y;
};

__device__ __forceinline__ Choice choose(
    const T* __restrict__ d, const state* __restrict__ next, const double* __restrict__ reward,
    double discount, int s, int t, wide pitch, int actions, int padded) {
    Choice best = {-1.0, 0.0, s, s};
    for (int side = 0; side < 2; ++side) {
        const int own = side == 0 ? s : t, other = side == 0 ? t : s;
        for (int a = 0; a < actions; ++a) {
            const wide own_at = wide(a) * padded + own;
            const T* __restrict__ row = d + next[own_at] * pitch;
            Choice lowest = {INFINITE, 0.0, s, s};
            // A response that is at most the best value so far rules the action out.
            for (int b = 0; b < actions && lowest.value > best.value; ++b) {
                const wide at = wide(b) * padded + other;
                const double gap = fabs(reward[own_at] - reward[at]);
                const double value = gap + discount * double(row[next[at]]);
                // NaN counts as infinite.
                if (value < lowest.value) lowest = {value, gap, int(next[own_at]), int(next[at])};
            }
            if (lowest.value > best.value) best = lowest;
        }
    }
    return best;
}

// The first step of the greedy choices, for the pair of each row and the state `offset` to the right of it.
extern "C" __global__ void select_choices(
    const T* __restrict__ d, Step* __restrict__ steps, const state* __restrict__ next,
    const double* __restrict__ reward, const double* __restrict__ cost, const int* __restrict__ classes,
    double diameter, double discount, int states, wide pitch, int actions, int padded) {
    const int half = states / 2;
    for (int s = blockIdx.y; s < states; s += gridDim.y)
        for (int offset = blockIdx.x * blockDim.x + threadIdx.x; offset <= half;
             offset += gridDim.x * blockDim.x) {
            const int t = s + offset < states ? s + offset : s + offset - states;
            int x = s, y = s;
            double immediate = 0.0;
            if (offset > 0 && ARE_COMPARABLE(s, t)) {
                const Choice choice = choose(d, next, reward, discount, s, t, pitch, actions, padded);
                immediate = choice.gap + COST(s, t);
                x = choice.x;
                y = choice.y;
            } else if (offset > 0) {
                immediate = diameter;
            }
            steps[wide(s) * (half + 1) + offset] = make_step(immediate, x, y, states);
        }
}

// The largest |F(d) - d| and F(d), in double precision whatever the type of the matrix.
extern "C" __global__ void compute_lax_residual(
    const T* __restrict__ d, const state* __restrict__ next, const double* __restrict__ reward,
    const double* __restrict__ cost, const int* __restrict__ classes, double diameter, double discount,
    int states, wide pitch, int actions, int padded, bits* residual, bits* largest) {
    __shared__ double residuals[256], values[256];
    double residual_max = 0.0, top = 0.0;
    for (int s = blockIdx.x; s < states; s += gridDim.x)
        for (int t = threadIdx.x; t < states; t += blockDim.x) {
            double value = diameter;
            if (ARE_COMPARABLE(s, t))
                value = choose(d, next, reward, discount, s, t, pitch, actions, padded).value + COST(s, t);
            residual_max = larger_or_nan(residual_max, fabs(value - double(d[s * pitch + t])));
            top = value > top ? value : top;
        }
    residuals[threadIdx.x] = residual_max;
    values[threadIdx.x] = top;
    write_maxima(residuals, values, residual, largest);
}

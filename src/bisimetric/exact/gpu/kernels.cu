// Kernels on a whole distance matrix d (S x S), symmetric, with 0 on its diagonal; they follow rows.cu.
//
// Compiled for one problem with the macros of rows.cu, and
//   QUADS            groups of 4 columns in the registers of each thread of `sweep`
//   LEVEL_TILE_ROWS  rows of the tiles of a level
// A pair of states belongs to the row from which the other is at most S/2 to the right, cyclically:
// each row then computes equally many pairs, and `mirror` copies them across the diagonal.

// backup = max(d, F(d)),
// F(d)(s, t) = cost(s, t) + max_a |R(s, a) - R(t, a)| + discount * d(next(s, a), next(t, a))
//
// for `count` states s, and the `span` states t to the right of each, cyclically. `d`, `backup` and `cost`
// have the row of state `first` first; `rows` has the rows of successors. A block computes one state of
// `order` after the other. Per action, `visits`, the first `cached` numbers of d[next(s, a)] are in shared
// memory, where columns are gathered; the rest is read from global memory. Threads take four columns at a
// time. `next` and `reward` repeat cyclically, `padded` numbers per action. The discount is a sum of two
// numbers. `increase` is the largest F(d) - d of each block.
extern "C" __global__ void __launch_bounds__(SWEEP_THREADS, 1)
sweep(const T* __restrict__ rows, const T* __restrict__ d, T* __restrict__ backup,
      const state* __restrict__ next, const T* __restrict__ reward, const double* __restrict__ cost,
      const int* __restrict__ order, const Visit* __restrict__ visits, T discount, T excess, int states,
      int first, int count, int span, wide pitch, int actions, int padded, unsigned cached, T* increase) {
    extern __shared__ Quad space[];
    const int part_columns = 4 * QUADS * SWEEP_THREADS, parts = (span + 4 + part_columns - 1) / part_columns;
    RowWalk walk(space, cached, rows, visits, count, pitch, actions, parts);
    T max_increase = T(0);
    for (int v = walk.low; v < walk.high; ++v) {
        const int s = order[v];
        const wide base = wide(s - first) * pitch;
        for (int part = 0; part < parts; ++part) {
            const int left = ((s + 1) & ~3) + part * part_columns + 4 * threadIdx.x;
            T top[QUADS][4];
#pragma unroll
            for (int k = 0; k < QUADS; ++k)
#pragma unroll
                for (int i = 0; i < 4; ++i) top[k][i] = T(0);
            for (int j = 0; j < actions; ++j) {
                const wide at = wide(walk.enter(v, part, j)) * padded;
                const T own_reward = reward[at + s];
                const State4* __restrict__ columns = reinterpret_cast<const State4*>(next + at + left);
                const Value4* __restrict__ rewards = reinterpret_cast<const Value4*>(reward + at + left);
                State4 next_columns = columns[0];
                Value4 next_rewards = rewards[0];
                const T* __restrict__ row = walk.wait();
#pragma unroll
                for (int k = 0; k < QUADS; ++k) {
                    const State4 column = next_columns;
                    const Value4 other = next_rewards;
                    if (k + 1 < QUADS) {
                        next_columns = columns[(k + 1) * SWEEP_THREADS];
                        next_rewards = rewards[(k + 1) * SWEEP_THREADS];
                    }
                    T next_value[4];
                    gather(next_value, space, row, column, cached);
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const T gap = fma_down(excess, next_value[i], fabs(own_reward - other.at[i]));
                        top[k][i] = maximum(top[k][i], fma_down(discount, next_value[i], gap));
                    }
                }
                walk.leave();
            }
#pragma unroll
            for (int k = 0; k < QUADS; ++k) {
                const int position = left + 4 * k * SWEEP_THREADS;
                const int t = position < states ? position : position - states;
                // Four aligned columns of one row, or single ones at the ends.
                if (position > s && position + 3 <= s + span && t % 4 == 0 && t + 3 < states) {
                    Value4 old, value;
                    const Quad* from = reinterpret_cast<const Quad*>(d + base + t);
                    Quad* to = reinterpret_cast<Quad*>(backup + base + t);
#pragma unroll
                    for (int i = 0; i < int(sizeof(T)) / 4; ++i) reinterpret_cast<Quad*>(&old)[i] = load_once(from + i);
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const T updated = add_down(top[k][i], COST(s - first, t + i));
                        value.at[i] = maximum(old.at[i], updated);
                        max_increase = maximum(max_increase, updated - old.at[i]);
                    }
#pragma unroll
                    for (int i = 0; i < int(sizeof(T)) / 4; ++i) store_once(to + i, reinterpret_cast<Quad*>(&value)[i]);
                    continue;
                }
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    if (position + i <= s || position + i > s + span) continue;
                    const int u = position + i < states ? position + i : position + i - states;
                    const T old = d[base + u], updated = add_down(top[k][i], COST(s - first, u));
                    backup[base + u] = maximum(old, updated);
                    max_increase = maximum(max_increase, updated - old);
                }
            }
        }
    }
    write_block_maximum(reinterpret_cast<T*>(space), max_increase, increase);
}

// Copies the computed half of a matrix across the diagonal.
extern "C" __global__ void mirror(T* matrix, int states, wide pitch) {
    __shared__ T tile[TILE_SIZE][TILE_SIZE + 1];
    const TilePair pair;
    if (pair.is_repeated) return;
    const int half = states / 2, from = pair.from, to = pair.to, right = to - from;
    // Whether all pairs of the tile belong to its own rows.
    if (right > 0 ? right < TILE_SIZE || right + TILE_SIZE - 1 > half : -right - TILE_SIZE + 1 <= half) {
        for (int k = threadIdx.x; k < TILE_SIZE * TILE_SIZE; k += blockDim.x) {
            const int y = from + k / TILE_SIZE, x = to + k % TILE_SIZE, i = y < x ? y : x, j = y < x ? x : y;
            if (i == j || j >= states || (from == to && y > x)) continue;
            if (j - i <= half) matrix[j * pitch + i] = matrix[i * pitch + j];
            else matrix[i * pitch + j] = matrix[j * pitch + i];
        }
        return;
    }
#pragma unroll 4
    for (int k = threadIdx.x; k < TilePair::COUNT; k += blockDim.x) {
        const int y = TilePair::row(k), x = TilePair::column(k);
        if (from + y >= states || to + x >= states) continue;
        const ValueGroup group = *reinterpret_cast<const ValueGroup*>(matrix + (from + y) * pitch + to + x);
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) tile[y][x + i] = group.at[i];
    }
    __syncthreads();
#pragma unroll 4
    for (int k = threadIdx.x; k < TilePair::COUNT; k += blockDim.x) {
        const int y = TilePair::row(k), x = TilePair::column(k);
        if (to + y >= states || from + x >= states) continue;
        ValueGroup group;
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) group.at[i] = tile[x + i][y];
        *reinterpret_cast<ValueGroup*>(matrix + (to + y) * pitch + from + x) = group;
    }
}

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
            if (offset > 0) immediate += COST(s, s + offset < states ? s + offset : s + offset - states);
            steps[wide(s) * (half + 1) + offset] = make_step(immediate, x, y, states);
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

// The cost of the steps plus the value of the pair where they end. With `keep_larger` the matrix is raised
// to that, a lower bound, as the value of any policy is; `rounding_factor` removes what rounding may have
// added.
extern "C" __global__ void apply_policy_value(
    const T* __restrict__ d, T* __restrict__ backup, const Step* __restrict__ steps, double weight,
    double rounding_factor, int keep_larger, int states, wide pitch) {
    const int half = states / 2;
    for (int s = blockIdx.y; s < states; s += gridDim.y)
        for (int offset = blockIdx.x * blockDim.x + threadIdx.x; offset <= half;
             offset += gridDim.x * blockDim.x) {
            const int t = s + offset < states ? s + offset : s + offset - states;
            const Step step = steps[wide(s) * (half + 1) + offset];
            const int last = step.row + step.offset;
            const double end_value = d[step.row * pitch + (last < states ? last : last - states)];
            const T value = round_down(rounding_factor * (step.cost + weight * end_value), T(0));
            backup[s * pitch + t] = keep_larger ? maximum(d[s * pitch + t], value) : value;
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
            residual_max = larger_or_nan(residual_max, fabs(best - double(d[s * pitch + t])));
            top = best > top ? best : top;
        }
    residuals[threadIdx.x] = residual_max;
    values[threadIdx.x] = top;
    write_maxima(residuals, values, residual, largest);
}

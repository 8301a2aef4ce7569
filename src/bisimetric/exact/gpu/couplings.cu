// Kernels for stochastic MDPs: F(d) and the couplings that attain it, one thread per pair of states.
//
// A move of a pair (s, t) is an action a of s and an action b of t; its value is
//   |R(s, a) - R(t, b)| + cost + discount * W1(d)(P(s, a), P(t, b)).
// Compiled for one MDP with the macros of transport.cu and
//   MATCH_FREELY  whether the states may take different actions of one group
//   CHOICE_BITS   16 or 32, the bits of a chosen move
//   VECTOR_TYPE   float or double, in policy evaluations
//   SWEEP_THREADS, BLOCK_THREADS  threads per block of `sweep_pairs`, and of all others
//   TILE_SIZE     side of the tiles in which matrices are transposed
// Besides the differences of rewards there may be a cost, cost_rows x cost_columns x S x S, or none: 0 rows.
// The pair (s, t), t < s, has number s * (s - 1) / 2 + t. Matrices are symmetric, S x S.

#if CHOICE_BITS == 16
typedef unsigned short choice_type;
#else
typedef unsigned choice_type;
#endif
#define NO_MOVE choice_type(~choice_type(0))
#define MODEL                                                                                     \
    const int *__restrict__ row_starts, const int *__restrict__ successors,                       \
        const double *__restrict__ probabilities, const double *__restrict__ reward,              \
        const unsigned char *__restrict__ available, const int *__restrict__ classes,             \
        const int *__restrict__ groups, const double *__restrict__ cost, int cost_rows,           \
        int cost_columns, double discount, double diameter, int actions, int states
#define COUPLINGS choice_type *__restrict__ choices, cell_type *__restrict__ cells, vector_type *__restrict__ masses

__device__ __forceinline__ void decode_pair(wide pair, int& s, int& t) {
    wide row = wide((1.0 + sqrt(1.0 + 8.0 * double(pair))) / 2);
    while (row * (row - 1) / 2 > pair) --row;
    while ((row + 1) * row / 2 <= pair) ++row;
    s = int(row);
    t = int(pair - row * (row - 1) / 2);
}

// Solves the move (a of s, b of t) and returns its value, with a bound on the error of W1. Or returns an
// upper bound of at most `enough`, or a lower bound of at least `limit`, and then `is_optimal` is false.
__device__ double evaluate_move(Problem& x, const double* __restrict__ d, MODEL, int s, int a, int t, int b,
                                const cell_type* __restrict__ cells, bool has_tree, wide pairs, wide pair,
                                double enough, double limit, double& error, bool& is_optimal) {
    const int p = s * actions + a, q = t * actions + b;
    double gap = fabs(reward[p] - reward[q]);
    if (cost_rows > 0) {
        const int cost_a = a < cost_rows ? a : cost_rows - 1, cost_b = b < cost_columns ? b : cost_columns - 1;
        gap += cost[((wide(cost_a) * cost_columns + cost_b) * states + s) * states + t];
    }
    const int from = row_starts[p], to = row_starts[q];
    error = 0.0;
    is_optimal = true;
    cancel_common_mass(x, successors, probabilities, from, row_starts[p + 1], to, row_starts[q + 1]);
    if (x.n == 0 || x.m == 0) return gap;
    if (has_tree) {
        load_tree(x, cells, pairs, pair);
    } else {
        // Its flow may leave what rounding makes the sums of masses differ by.
        const double bound = build_northwest_tree(x, d, successors + from, successors + to, states) +
                             NORTHWEST_MARGIN * diameter;
        if (gap + discount * bound <= enough) {
            is_optimal = false;
            return gap + discount * bound;
        }
    }
    gather_costs(x, d, successors + from, successors + to, states);
#if MATCH_FREELY
    const double bound = gap + discount * bound_cost(x);
    if (bound >= limit) {
        is_optimal = false;
        return bound;
    }
#endif
    evaluate_tree(x);
    double estimate = compute_cost(x);
    if (x.n == 1 || x.m == 1) {  // the only coupling
        error = x.imbalance * x.largest;
        return gap + discount * estimate;
    }
    if (gap + discount * (estimate + x.imbalance * x.largest) <= enough) {
        is_optimal = false;
        return gap + discount * estimate;
    }
    const double threshold = -REDUCED_COST_TOLERANCE * x.largest;
    int row = 0, column = SUPPORT, pivots = 0, stalled = 0;
    double least = price_cells(x, threshold, false, row, column);
    while (least < threshold && pivots < MAX_PIVOTS) {
        const double amount = pivot(x, row, column, least);
        estimate += amount * least;
        stalled = amount > 0 ? 0 : stalled + 1;
        ++pivots;
        if (pivots <= 64 * SUPPORT && gap + discount * (estimate + ESTIMATE_MARGIN * x.largest) <= enough) {
            is_optimal = false;
            return gap + discount * estimate;
        }
        // Bland's rule ends a cycle of degenerate pivots.
        least = price_cells(x, threshold, stalled > 4 * SUPPORT, row, column);
    }
    if (pivots > 0) {
        // Each pivot leaves a rounding in flows and potentials.
        cancel_common_mass(x, successors, probabilities, from, row_starts[p + 1], to, row_starts[q + 1]);
        evaluate_tree(x);
        estimate = compute_cost(x);
        least = price_cells(x, threshold, false, row, column);
    }
    // Weak duality, whatever the potentials: no coupling of the flow's marginals costs less by more than the
    // reduced costs are off, per unit of mass: `least` outside the tree, and rounding in it, of one
    // difference here and two in `price_cells`. Its marginals differ from the masses by the imbalance.
    double potential = 0.0;
    for (int i = 0; i < x.n; ++i) potential = larger(potential, fabs(x.potential[i]));
    for (int j = 0; j < x.m; ++j) potential = larger(potential, fabs(x.potential[SUPPORT + j]));
    error = larger(0.0, -least) + x.imbalance * x.largest + 8 * UNIT * (x.largest + 2 * potential);
    return gap + discount * estimate;
}

// The chosen actions of a pair; returns whether it has a move.
__device__ __forceinline__ bool decode_choice(choice_type choice, int actions, int& a, int& b) {
    if (choice == NO_MOVE) return false;
#if MATCH_FREELY
    const int own = choice / actions % actions, response = choice % actions;
    a = choice < actions * actions ? own : response;
    b = choice < actions * actions ? response : own;
#else
    a = b = choice;
#endif
    return true;
}

// The sum or the maximum over a block of at most THREADS threads, a power of 2.
template <int THREADS> __device__ double reduce_block(double value, bool sum) {
    __shared__ double values[THREADS];
    values[threadIdx.x] = value;
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) {
            const double a = values[threadIdx.x], b = values[threadIdx.x + step];
            // NaN is larger than any number.
            values[threadIdx.x] = sum ? a + b : b > a || b != b ? b : a;
        }
    }
    __syncthreads();
    const double result = values[0];
    __syncthreads();
    return result;
}

// Sets residual = F(d) - d below the diagonal, and the choice and coupling of each pair; `maxima` receives
// per block the largest |F(d) - d|, F(d) and error of W1. The last choice is evaluated first: its value
// rules out most others. With `hold_actions` each pair keeps its last action, and only couplings (and
// responses) are computed. The error is complete only without `hold_actions`.
extern "C" __global__ void __launch_bounds__(SWEEP_THREADS)
sweep_pairs(const double* __restrict__ d, vector_type* __restrict__ residual, MODEL, COUPLINGS, int has_trees,
            int hold_actions, double* maxima) {
#if STRIDE > 1
    extern __shared__ Quad space[];
    double* reals = reinterpret_cast<double*>(space) + threadIdx.x;
#else
    double local_reals[SUPPORT * SUPPORT + 4 * SUPPORT];
    double* reals = local_reals;
#endif
    Problem x;
    x.cost.first = reals;
    x.flow.first = reals + SUPPORT * SUPPORT * STRIDE;
    x.potential.first = x.flow.first + 2 * SUPPORT * STRIDE;
#if STRIDE > 1
    double* rest = reinterpret_cast<double*>(space) + (SUPPORT * SUPPORT + 4 * SUPPORT) * STRIDE;
    x.below.first = reinterpret_cast<nodes_type*>(rest) + threadIdx.x;
    int* parents = reinterpret_cast<int*>(reinterpret_cast<nodes_type*>(rest) + 2 * SUPPORT * STRIDE);
    x.parent.first = parents + threadIdx.x;
    unsigned char* bytes = reinterpret_cast<unsigned char*>(parents + 2 * SUPPORT * STRIDE);
    x.order.first = bytes + threadIdx.x;
    x.origin.first = bytes + 2 * SUPPORT * STRIDE + threadIdx.x;
#else
    nodes_type local_below[2 * SUPPORT];
    int local_parents[2 * SUPPORT];
    unsigned char local_order[2 * SUPPORT], local_origin[2 * SUPPORT];
    x.below.first = local_below;
    x.parent.first = local_parents;
    x.order.first = local_order;
    x.origin.first = local_origin;
#endif
    const wide pairs = wide(states) * (states - 1) / 2;
    double max_residual = 0.0, max_value = 0.0, max_error = 0.0;
    for (wide pair = wide(blockIdx.x) * SWEEP_THREADS + threadIdx.x; pair < pairs;
         pair += wide(gridDim.x) * SWEEP_THREADS) {
        int s, t;
        decode_pair(pair, s, t);
        double value = -1.0, error;
        bool is_optimal;
        if (classes[s] != classes[t]) {
            choices[pair] = NO_MOVE;
            value = diameter;
        } else {
            const choice_type last = choices[pair];
#if MATCH_FREELY
            int best = last, stored = has_trees ? int(last) : -1;
            for (int turn = 0; turn < (hold_actions ? 1 : 2 * actions); ++turn) {
                const int row = (turn + last / actions) % (2 * actions), side = row / actions, own = row % actions;
                if (!available[(side == 0 ? s : t) * actions + own]) continue;
                double least = infinity();
                int response = 0;
                // The last response first; in other rows the one with the least upper bound.
                int hint = last % actions;
                if (turn > 0) {
                    double least_bound = infinity();
                    for (int other = 0; other < actions && least_bound > value; ++other) {
                        const int a = side == 0 ? own : other, b = side == 0 ? other : own;
                        if (!available[(side == 0 ? t : s) * actions + other] || groups[a] != groups[b]) continue;
                        const double bound = evaluate_move(
                            x, d, row_starts, successors, probabilities, reward, available, classes, groups, cost,
                            cost_rows, cost_columns, discount, diameter, actions, states, s, a, t, b, cells,
                            false, pairs, pair, infinity(), infinity(), error, is_optimal);
                        if (bound < least_bound) {
                            least_bound = bound;
                            hint = other;
                        }
                    }
                    if (least_bound <= value) continue;
                }
                for (int guess = 0; guess < actions && least > value; ++guess) {
                    const int other = (guess + hint) % actions;
                    const int a = side == 0 ? own : other, b = side == 0 ? other : own;
                    if (!available[(side == 0 ? t : s) * actions + other] || groups[a] != groups[b]) continue;
                    if (fabs(reward[s * actions + a] - reward[t * actions + b]) >= least) continue;
                    const int move = row * actions + other;
                    const double found = evaluate_move(
                        x, d, row_starts, successors, probabilities, reward, available, classes, groups, cost,
                        cost_rows, cost_columns, discount, diameter, actions, states, s, a, t, b, cells,
                        stored == move, pairs, pair, value, least, error, is_optimal);
                    max_error = larger(max_error, error);
                    if (found >= least) continue;
                    least = found;
                    response = other;
                    if (is_optimal && least > value) {
                        store_coupling(x, cells, masses, pairs, pair);
                        stored = move;
                    }
                }
                if (least > value) {
                    value = least;
                    best = row * actions + response;
                }
            }
            if (stored != best) {
                int a = 0, b = 0;
                decode_choice(choice_type(best), actions, a, b);
                evaluate_move(x, d, row_starts, successors, probabilities, reward, available, classes, groups,
                              cost, cost_rows, cost_columns, discount, diameter, actions, states, s, a, t, b, cells, false,
                              pairs, pair, -1.0, infinity(), error, is_optimal);
                store_coupling(x, cells, masses, pairs, pair);
            }
            choices[pair] = choice_type(best);
#else
            int start = last, best = last;
            while (!available[s * actions + start]) start = (start + 1) % actions;
            for (int turn = 0; turn < (hold_actions ? 1 : actions); ++turn) {
                const int a = (start + turn) % actions;
                if (!available[s * actions + a]) continue;
                const double found = evaluate_move(
                    x, d, row_starts, successors, probabilities, reward, available, classes, groups, cost,
                    cost_rows, cost_columns, discount, diameter, actions, states, s, a, t, a, cells,
                    has_trees && turn == 0, pairs, pair, value, infinity(), error, is_optimal);
                max_error = larger(max_error, error);
                if (!is_optimal || !(found > value)) continue;
                value = found;
                best = a;
                store_coupling(x, cells, masses, pairs, pair);
            }
            choices[pair] = choice_type(best);
#endif
        }
        const double difference = value - d[wide(s) * states + t];
        residual[wide(s) * states + t] = vector_type(difference);
        const double size = fabs(difference);
        max_residual = size <= max_residual ? max_residual : size == size ? size : infinity();
        max_value = larger(max_value, value);
    }
    max_residual = reduce_block<SWEEP_THREADS>(max_residual, false);
    max_value = reduce_block<SWEEP_THREADS>(max_value, false);
    max_error = reduce_block<SWEEP_THREADS>(max_error, false);
    if (threadIdx.x == 0) {
        maxima[blockIdx.x] = max_residual;
        maxima[gridDim.x + blockIdx.x] = max_value;
        maxima[2 * gridDim.x + blockIdx.x] = max_error;
    }
}

// out = (I - discount * P) x for the chosen couplings P; `sums` receives per block the products
// shadow . out, x . out and out . out.
extern "C" __global__ void apply_couplings(
    const vector_type* __restrict__ x, vector_type* __restrict__ out, const vector_type* __restrict__ shadow, MODEL, COUPLINGS,
    double* sums) {
    const wide pairs = wide(states) * (states - 1) / 2;
    double shadow_product = 0.0, own_product = 0.0, square = 0.0;
    for (wide pair = wide(blockIdx.x) * blockDim.x + threadIdx.x; pair < pairs;
         pair += wide(gridDim.x) * blockDim.x) {
        int s, t, a, b;
        decode_pair(pair, s, t);
        const vector_type own = x[wide(s) * states + t];
        double next = 0.0;
        if (decode_choice(choices[pair], actions, a, b)) {
            const int* __restrict__ from = successors + row_starts[s * actions + a];
            const int* __restrict__ to = successors + row_starts[t * actions + b];
#pragma unroll
            for (int edge = 0; edge < EDGES; ++edge) {
                const vector_type mass = masses[edge * pairs + pair];
                if (mass > vector_type(0)) {
                    const int cell = cells[edge * pairs + pair];
                    next += double(mass) * x[wide(from[cell / SUPPORT]) * states + to[cell % SUPPORT]];
                }
            }
        }
        const double value = own - discount * next;
        out[pair] = vector_type(value);
        shadow_product += shadow[pair] * value;
        own_product += own * value;
        square += value * value;
    }
    shadow_product = reduce_block<BLOCK_THREADS>(shadow_product, true);
    own_product = reduce_block<BLOCK_THREADS>(own_product, true);
    square = reduce_block<BLOCK_THREADS>(square, true);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = shadow_product;
        sums[gridDim.x + blockIdx.x] = own_product;
        sums[2 * gridDim.x + blockIdx.x] = square;
    }
}

// The vectors of BiCGSTAB: `residual` and `direction` are matrices, the others have one number per pair.
// Starts with the solution 0; `sums` receives per block residual . residual and its largest entry.
extern "C" __global__ void start_evaluation(
    const vector_type* __restrict__ residual, vector_type* __restrict__ direction, vector_type* __restrict__ shadow,
    vector_type* __restrict__ image, vector_type* __restrict__ solution, int states, double* sums) {
    const wide pairs = wide(states) * (states - 1) / 2;
    double square = 0.0, largest = 0.0;
    for (wide pair = wide(blockIdx.x) * blockDim.x + threadIdx.x; pair < pairs;
         pair += wide(gridDim.x) * blockDim.x) {
        int s, t;
        decode_pair(pair, s, t);
        const vector_type value = residual[wide(s) * states + t];
        direction[wide(s) * states + t] = image[pair] = solution[pair] = vector_type(0);
        shadow[pair] = value;
        square += double(value) * value;
        largest = larger(largest, fabs(double(value)));
    }
    square = reduce_block<BLOCK_THREADS>(square, true);
    largest = reduce_block<BLOCK_THREADS>(largest, false);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = square;
        sums[gridDim.x + blockIdx.x] = largest;
    }
}

// target = first + factor * (target - weight * second) for matrices `target` and `first`.
extern "C" __global__ void update_direction(
    vector_type* __restrict__ direction, const vector_type* __restrict__ residual, const vector_type* __restrict__ image,
    double factor, double weight, int states) {
    const wide pairs = wide(states) * (states - 1) / 2;
    for (wide pair = wide(blockIdx.x) * blockDim.x + threadIdx.x; pair < pairs;
         pair += wide(gridDim.x) * blockDim.x) {
        int s, t;
        decode_pair(pair, s, t);
        const wide at = wide(s) * states + t;
        direction[at] = vector_type(residual[at] + factor * (direction[at] - weight * image[pair]));
    }
}

// residual -= step * image
extern "C" __global__ void update_residual(
    vector_type* __restrict__ residual, const vector_type* __restrict__ image, double step, int states) {
    const wide pairs = wide(states) * (states - 1) / 2;
    for (wide pair = wide(blockIdx.x) * blockDim.x + threadIdx.x; pair < pairs;
         pair += wide(gridDim.x) * blockDim.x) {
        int s, t;
        decode_pair(pair, s, t);
        residual[wide(s) * states + t] = vector_type(residual[wide(s) * states + t] - step * image[pair]);
    }
}

// solution += step * direction + weight * residual; residual -= weight * image; `sums` receives per block
// shadow . residual and the largest entry of the residual.
extern "C" __global__ void update_solution(
    vector_type* __restrict__ solution, const vector_type* __restrict__ direction, vector_type* __restrict__ residual,
    const vector_type* __restrict__ image, const vector_type* __restrict__ shadow, double step, double weight, int states,
    double* sums) {
    const wide pairs = wide(states) * (states - 1) / 2;
    double product = 0.0, largest = 0.0;
    for (wide pair = wide(blockIdx.x) * blockDim.x + threadIdx.x; pair < pairs;
         pair += wide(gridDim.x) * blockDim.x) {
        int s, t;
        decode_pair(pair, s, t);
        const wide at = wide(s) * states + t;
        const double old = residual[at];
        solution[pair] = vector_type(solution[pair] + step * direction[at] + weight * old);
        const double left = old - weight * image[pair];
        residual[at] = vector_type(left);
        product += shadow[pair] * left;
        const double size = fabs(left);
        largest = size <= largest ? largest : size;
    }
    product = reduce_block<BLOCK_THREADS>(product, true);
    largest = reduce_block<BLOCK_THREADS>(largest, false);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = product;
        sums[gridDim.x + blockIdx.x] = largest;
    }
}

// d = max(0, d + change) below the diagonal
extern "C" __global__ void add_change(double* __restrict__ d, const vector_type* __restrict__ change, int states) {
    const wide pairs = wide(states) * (states - 1) / 2;
    for (wide pair = wide(blockIdx.x) * blockDim.x + threadIdx.x; pair < pairs;
         pair += wide(gridDim.x) * blockDim.x) {
        int s, t;
        decode_pair(pair, s, t);
        d[wide(s) * states + t] = larger(0.0, d[wide(s) * states + t] + change[pair]);
    }
}

// Copies the entries below the diagonal across it, in tiles.
template <typename N> __device__ void mirror_tile(N* matrix, int states) {
    __shared__ N tile[TILE_SIZE][TILE_SIZE + 1];
    const int i0 = TILE_SIZE * blockIdx.y, j0 = TILE_SIZE * blockIdx.x;
    if (i0 < j0) return;
    for (int k = threadIdx.x; k < TILE_SIZE * TILE_SIZE; k += blockDim.x) {
        const int y = k / TILE_SIZE, x = k % TILE_SIZE;
        if (i0 + y < states && j0 + x < i0 + y) tile[y][x] = matrix[wide(i0 + y) * states + j0 + x];
    }
    __syncthreads();
    for (int k = threadIdx.x; k < TILE_SIZE * TILE_SIZE; k += blockDim.x) {
        const int y = k / TILE_SIZE, x = k % TILE_SIZE;
        if (i0 + x < states && j0 + y < i0 + x) matrix[wide(j0 + y) * states + i0 + x] = tile[x][y];
    }
}
extern "C" __global__ void mirror_vectors(vector_type* matrix, int states) { mirror_tile(matrix, states); }
extern "C" __global__ void mirror_doubles(double* matrix, int states) { mirror_tile(matrix, states); }

// out(s, t) = scale * d(position(s), position(t)), at least `floor` off the diagonal; `moved` receives per
// block the largest change by rounding.
template <typename N> __device__ __forceinline__ void write_rounded(
    const double* __restrict__ d, N* __restrict__ out, const int* __restrict__ position, double scale,
    double floor, int states, double* moved) {
    double largest = 0.0;
    const wide count = wide(states) * states;
    for (wide at = wide(blockIdx.x) * blockDim.x + threadIdx.x; at < count; at += wide(gridDim.x) * blockDim.x) {
        const int s = int(at / states), t = int(at % states);
        const double value = scale * d[wide(position[s]) * states + position[t]];
        const N rounded = N(s == t || value > floor ? value : floor);
        out[at] = rounded;
        largest = larger(largest, fabs(double(rounded) - value));
    }
    largest = reduce_block<BLOCK_THREADS>(largest, false);
    if (threadIdx.x == 0) moved[blockIdx.x] = largest;
}
extern "C" __global__ void write_floats(
    const double* d, float* out, const int* position, double scale, double floor, int states, double* moved) {
    write_rounded(d, out, position, scale, floor, states, moved);
}
extern "C" __global__ void write_doubles(
    const double* d, double* out, const int* position, double scale, double floor, int states, double* moved) {
    write_rounded(d, out, position, scale, floor, states, moved);
}

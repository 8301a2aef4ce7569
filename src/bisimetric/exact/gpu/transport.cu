// W1 between two distributions on few states, in one thread: a transportation simplex.
//
// Common mass stays in place; the rest moves from rows, where the first distribution is larger, to
// columns. A basis is a spanning tree of rows (nodes 0 to n - 1) and columns (nodes SUPPORT to
// SUPPORT + m - 1), rooted at row 0. Sets of nodes are bit masks. Compiled with
//   SUPPORT  at least the largest number of successors, at most 32
//   STRIDE   threads per block where problems are in shared memory, 1 where in local memory
//   MAX_PIVOTS  of one problem; by default far more than any needs

typedef long long wide;
typedef VECTOR_TYPE vector_type;
#if SUPPORT <= 16
typedef unsigned nodes_type;
typedef unsigned char cell_type;
#else
typedef unsigned long long nodes_type;
typedef unsigned short cell_type;
#endif
#define EDGES (2 * SUPPORT - 1)
#ifndef MAX_PIVOTS
#define MAX_PIVOTS (50 * SUPPORT * SUPPORT + 1000)
#endif

// The unit roundoff of float64; the fraction of the largest cost below which a reduced cost counts as 0;
// and those by which a bound that was updated in pivots, and that of the north-west corner rule, may be
// off, with wide margins: the latter by 10 * SUPPORT roundings.
#define UNIT 1.1102230246251565e-16
#define REDUCED_COST_TOLERANCE (64 * UNIT)
#define ESTIMATE_MARGIN 1e-9
#define NORTHWEST_MARGIN 1e-12

struct alignas(16) Quad { unsigned word[4]; };

__device__ __forceinline__ double infinity() { return __longlong_as_double(0x7ff0000000000000); }
__device__ __forceinline__ double larger(double a, double b) { return a > b ? a : b; }
__device__ __forceinline__ double smaller(double a, double b) { return a < b ? a : b; }
__device__ __forceinline__ nodes_type bit(int node) { return nodes_type(1) << node; }
__device__ __forceinline__ int lowest_node(nodes_type nodes) {
#ifdef __CUDA_ARCH__
    return __ffsll((long long)nodes) - 1;
#else
    return __builtin_ctzll(nodes);
#endif
}
__device__ __forceinline__ int count_nodes(nodes_type nodes) {
#ifdef __CUDA_ARCH__
    return __popcll(nodes);
#else
    return __builtin_popcountll(nodes);
#endif
}

// An array of one thread; in shared memory those of a block are interleaved, without bank conflicts.
template <typename N> struct Lane {
    N* first;
    __device__ __forceinline__ N& operator[](int i) const { return first[i * STRIDE]; }
};

// The transport problem of a thread.
struct Problem {
    Lane<double> cost;         // of row i and column j at i * SUPPORT + j
    Lane<double> flow;         // between a node and its parent; before, the mass of the node
    Lane<double> potential;
    Lane<nodes_type> below;    // the nodes of the subtree of a node
    Lane<int> parent;
    Lane<unsigned char> order;   // the nodes, parents first
    Lane<unsigned char> origin;  // of a node, its index among the successors
    nodes_type row_origins, column_origins;
    int n, m;
    double largest;    // cost
    double imbalance;  // the difference of masses and flows, besides rounding
};

__device__ __forceinline__ int find_cell(int v, int u) {
    return v < SUPPORT ? v * SUPPORT + u - SUPPORT : u * SUPPORT + v - SUPPORT;
}

// Loads two distributions without their common mass.
__device__ void cancel_common_mass(Problem& x, const int* __restrict__ states,
                                   const double* __restrict__ probabilities, int p, int p_end, int q,
                                   int q_end) {
    const int p_start = p, q_start = q;
    int n = 0, m = 0;
    x.row_origins = x.column_origins = 0;
    while (p < p_end || q < q_end) {
        const int from = p < p_end ? states[p] : 0x7fffffff, to = q < q_end ? states[q] : 0x7fffffff;
        const double own = from <= to ? probabilities[p] : 0.0, other = to <= from ? probabilities[q] : 0.0;
        const double left = own - other;
        if (from < to || (from == to && left > 0)) {
            x.flow[n] = left;
            x.origin[n++] = (unsigned char)(p - p_start);
            x.row_origins |= bit(p - p_start);
        } else if (to < from || left < 0) {
            x.flow[SUPPORT + m] = -left;
            x.origin[SUPPORT + m++] = (unsigned char)(q - q_start);
            x.column_origins |= bit(q - q_start);
        }
        p += from <= to;
        q += to <= from;
    }
    x.n = n;
    x.m = m;
}

__device__ void gather_costs(Problem& x, const double* __restrict__ d, const int* __restrict__ from,
                             const int* __restrict__ to, int states) {
    x.largest = 0.0;
    for (int i = 0; i < x.n; ++i) {
        const double* __restrict__ row = d + wide(from[x.origin[i]]) * states;
#pragma unroll 4
        for (int j = 0; j < x.m; ++j) {
            const double distance = row[to[x.origin[SUPPORT + j]]];
            x.cost[i * SUPPORT + j] = distance;
            x.largest = larger(x.largest, distance);
        }
    }
}

// The tree of the north-west corner rule, optimal where costs are distances on a line; returns what its
// flow costs, reading only the costs of its edges.
__device__ double build_northwest_tree(Problem& x, const double* __restrict__ d, const int* __restrict__ from,
                                       const int* __restrict__ to, int states) {
    int i = 0, j = 0;
    double supply = x.flow[0], demand = x.flow[SUPPORT], cost = 0.0;
    x.parent[SUPPORT] = 0;
    while (i < x.n - 1 || j < x.m - 1) {
        const double distance = d[wide(from[x.origin[i]]) * states + to[x.origin[SUPPORT + j]]];
        if (j == x.m - 1 || (i < x.n - 1 && supply <= demand)) {
            cost += supply * distance;
            demand -= supply;
            supply = x.flow[++i];
            x.parent[i] = SUPPORT + j;
        } else {
            cost += demand * distance;
            supply -= demand;
            demand = x.flow[SUPPORT + ++j];
            x.parent[SUPPORT + j] = i;
        }
    }
    // What is left of both differs by rounding.
    const double rest = larger(0.0, supply < demand ? supply : demand);
    return cost + rest * d[wide(from[x.origin[i]]) * states + to[x.origin[SUPPORT + j]]];
}

// A lower bound on the cost of any coupling: each mass at the least cost of its row, or of its column.
__device__ double bound_cost(const Problem& x) {
    double by_rows = 0.0, by_columns = 0.0;
    for (int i = 0; i < x.n; ++i) {
        double least = infinity();
        for (int j = 0; j < x.m; ++j) least = smaller(least, x.cost[i * SUPPORT + j]);
        by_rows += x.flow[i] * least;
    }
    for (int j = 0; j < x.m; ++j) {
        double least = infinity();
        for (int i = 0; i < x.n; ++i) least = smaller(least, x.cost[i * SUPPORT + j]);
        by_columns += x.flow[SUPPORT + j] * least;
    }
    return larger(by_rows, by_columns);
}

// The tree that `store_coupling` wrote.
__device__ void load_tree(Problem& x, const cell_type* __restrict__ cells, wide pairs, wide pair) {
    for (int edge = 0; edge < x.n + x.m - 1; ++edge) {
        const int cell = cells[edge * pairs + pair], row = cell / SUPPORT, column = cell % SUPPORT;
        if (edge < x.n - 1)
            x.parent[edge + 1] = SUPPORT + count_nodes(x.column_origins & (bit(column) - 1));
        else
            x.parent[SUPPORT + edge - x.n + 1] = count_nodes(x.row_origins & (bit(row) - 1));
    }
}

__device__ void store_coupling(const Problem& x, cell_type* __restrict__ cells, vector_type* __restrict__ masses,
                               wide pairs, wide pair) {
    const int edges = x.n > 0 && x.m > 0 ? x.n + x.m - 1 : 0;
    for (int edge = 0; edge < EDGES; ++edge) {
        int cell = 0;
        vector_type mass = 0;
        if (edge < edges) {
            const int v = edge < x.n - 1 ? edge + 1 : SUPPORT + edge - x.n + 1, u = x.parent[v];
            cell = v < SUPPORT ? x.origin[v] * SUPPORT + x.origin[u] : x.origin[u] * SUPPORT + x.origin[v];
            mass = vector_type(x.flow[v]);
        }
        cells[edge * pairs + pair] = cell_type(cell);
        masses[edge * pairs + pair] = mass;
    }
}

// Computes order, subtrees, flows and potentials of the tree of parents from the masses in `flow`.
__device__ void evaluate_tree(Problem& x) {
    nodes_type pending = (bit(x.n) - 1) ^ 1 | (bit(x.m) - 1) << SUPPORT, reached = 1;
    int count = 1;
    x.order[0] = 0;
    x.below[0] = 1;
    x.potential[0] = 0.0;
    while (pending) {
        nodes_type found = 0;
        for (nodes_type rest = pending; rest; rest &= rest - 1) {
            const int v = lowest_node(rest), u = x.parent[v];
            if (!(reached & bit(u))) continue;
            found |= bit(v);
            reached |= bit(v);
            x.order[count++] = (unsigned char)v;
            x.below[v] = bit(v);
            x.potential[v] = x.cost[find_cell(v, u)] - x.potential[u];
        }
        if (!found) break;
        pending ^= found;
    }
    x.imbalance = 0.0;
    while (--count > 0) {
        const int v = x.order[count], u = x.parent[v];
        double flow = x.flow[v];
        if (flow < 0.0) {  // by rounding
            x.imbalance -= flow;
            x.flow[v] = flow = 0.0;
        }
        x.flow[u] -= flow;
        x.below[u] |= x.below[v];
    }
    x.imbalance += fabs(x.flow[0]);
}

__device__ double compute_cost(const Problem& x) {
    double cost = 0.0;
    for (int i = 1; i < x.n; ++i) cost += x.flow[i] * x.cost[find_cell(i, x.parent[i])];
    for (int j = SUPPORT; j < SUPPORT + x.m; ++j) cost += x.flow[j] * x.cost[find_cell(j, x.parent[j])];
    return cost;
}

// Enters the edge between row node i and column node j; returns the flow that it takes over.
__device__ double pivot(Problem& x, int i, int j, double reduced) {
    // On the paths up from both ends, edges below a node of the end's own side lose flow.
    double amount = infinity();
    int leaving = -1, lowest = 0, apex = i;
    bool below_row = true;
    for (; !(x.below[apex] & bit(j)); apex = x.parent[apex])
        if (apex < SUPPORT) {
            const int cell = find_cell(apex, x.parent[apex]);
            const double flow = x.flow[apex];
            if (flow < amount || (flow == amount && cell < lowest)) {
                amount = flow;
                leaving = apex;
                lowest = cell;
            }
        }
    for (int b = j; b != apex; b = x.parent[b])
        if (b >= SUPPORT) {
            const int cell = find_cell(b, x.parent[b]);
            const double flow = x.flow[b];
            if (flow < amount || (flow == amount && cell < lowest)) {
                amount = flow;
                leaving = b;
                lowest = cell;
                below_row = false;
            }
        }
    const nodes_type moved = x.below[leaving];
    const int top = below_row ? i : j, attachment = below_row ? j : i;
    for (int a = i; a != apex; a = x.parent[a]) x.flow[a] += a < SUPPORT ? -amount : amount;
    for (int b = j; b != apex; b = x.parent[b]) x.flow[b] += b >= SUPPORT ? -amount : amount;
    for (int a = x.parent[leaving]; a != apex; a = x.parent[a]) x.below[a] &= ~moved;
    for (int a = attachment; a != apex; a = x.parent[a]) x.below[a] |= moved;
    // The subtree that is cut off moves below the entering edge, its path up to `leaving` reversed.
    int v = top, above = attachment;
    double flow = amount;
    nodes_type inner = 0;
    while (true) {
        const int old = x.parent[v];
        const double old_flow = x.flow[v];
        const nodes_type old_below = x.below[v];
        x.parent[v] = above;
        x.flow[v] = flow;
        x.below[v] = moved & ~inner;
        if (v == leaving) break;
        above = v;
        v = old;
        flow = old_flow;
        inner = old_below;
    }
    const double shift = below_row ? reduced : -reduced;
    for (nodes_type rest = moved; rest; rest &= rest - 1) {
        const int node = lowest_node(rest);
        x.potential[node] += node < SUPPORT ? shift : -shift;
    }
    return amount;
}

// Finds the cell with the least reduced cost, or the first one below the threshold; returns that cost.
__device__ double price_cells(const Problem& x, double threshold, bool first, int& row, int& column) {
    double least = infinity();
    for (int i = 0; i < x.n; ++i) {
        const double u = x.potential[i];
        for (int j = 0; j < x.m; ++j) {
            const double reduced = x.cost[i * SUPPORT + j] - u - x.potential[SUPPORT + j];
            if (reduced < least) {
                least = reduced;
                row = i;
                column = SUPPORT + j;
                if (first && reduced < threshold) return least;
            }
        }
    }
    return least;
}

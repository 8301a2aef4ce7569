// Grids to start from.

/**
 * @typedef {object} Preset
 * @property {string} name
 * @property {string} text of the grid
 * @property {import("./playground_solver.js").Kind} kind
 * @property {number} discount
 * @property {[string, string]} states two of them, by name
 * @property {string} note what to see, and what to try
 */

const MIRRORED_ROOMS = `
*******
*    g*
*     *
*     *
*** ***
*    g*
*     *
*     *
*******
`;
const TWO_ROOMS = `
*************
*     *     *
*     *     *
*           *
*     *     *
*g    *    g*
*************
`;

/** @type {Record<string, Preset>} */
export const PRESETS = {
  "two-rooms": {
    name: "two rooms",
    text: TWO_ROOMS,
    kind: "lax",
    discount: 0.9,
    states: ["1,4", "1,8"],
    note: "Each cell is at distance 0 from its mirror image: left in one room matches right in the other. Choose d~, which matches each action with itself, and the distance is no longer 0.",
  },
  "one-wall": {
    name: "two rooms, one more wall",
    text: TWO_ROOMS.replace("*     *     *\n*     *     *", "*     *     *\n*     *  *  *"),
    kind: "lax",
    discount: 0.9,
    states: ["1,4", "1,8"],
    note: "One wall breaks the symmetry: no cell has a mirror image at distance 0 any more. Erase it to mend that.",
  },
  "mirrored-rooms": {
    name: "mirrored rooms",
    text: MIRRORED_ROOMS,
    kind: "bisimulation",
    discount: 0.9,
    states: ["1,1", "5,1"],
    note: "The 31 states of the paper. The two rooms are copies, but one has its door below and the other above. Paint a wall over the door: corresponding cells are then at distance 0.",
  },
  pessimism: {
    name: "pessimism",
    text: "*****\n* g *\n*****",
    kind: "bisimulation",
    discount: 0.9,
    states: ["1,1", "1,3"],
    note: "Both cells beside the goal have the same optimal value, but d~ compares left with left: it is pessimistic. Choose d_lax: the distance is 0.",
  },
  empty: {
    name: "an empty room",
    text: "**********\n*        *\n*        *\n*        *\n*        *\n*        *\n*        *\n**********",
    kind: "bisimulation",
    discount: 0.9,
    states: ["1,1", "3,4"],
    note: "Only walls distinguish these cells. Paint a goal, and see how far its influence reaches at this discount.",
  },
  rewards: {
    name: "rewards and traps",
    text: "***********\n*    x   g*\n* ** x ** *\n* *  5    *\n* * *** * *\n*       * *\n* 2 x   *3*\n***********",
    kind: "on_policy",
    discount: 0.9,
    states: ["1,1", "5,7"],
    note: "At discount 0.9 all arrows of the optimal policy lead to the goal. Lower the discount to 0.5: many turn to a small reward nearby. d^π compares where they lead.",
  },
};

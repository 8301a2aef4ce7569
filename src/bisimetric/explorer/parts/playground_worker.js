// A Worker that solves problems: grids too large for the thread of the page.
import { solve } from "./playground_solver.js";

self.addEventListener("message", ({ data: { id, problem } }) => {
  const solution = solve(problem);
  const { distances, labels, policy, strategies, V } = solution;
  const buffers = [distances, labels, policy, strategies, V].map((array) => array.buffer);
  self.postMessage({ id, solution }, { transfer: buffers });
});

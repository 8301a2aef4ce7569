// Solve problems on the thread of the page or, if they are large, in a Worker.
import { solve } from "./playground_solver.js";

export const MAX_STATES = 600;
// The largest numbers of states that are solved between two frames.
const MAX_MAIN_THREAD_STATES = { bisimulation: 200, on_policy: 400, lax: 120 };

/**
 * @typedef {import("./playground_solver.js").Problem} Problem
 * @typedef {import("./playground_solver.js").Solution} Solution
 */

export class SolutionQueue {
  /**
   * @param {string} workerSource the script of the Worker
   * @param {(problem: Problem, solution: Solution, facts: { milliseconds: number, worker: boolean }) => void} show
   */
  constructor(workerSource, show) {
    this.workerSource = workerSource;
    this.show = show;
    /** @type {Problem | null} */
    this.running = null;
    /** @type {Problem | null} */
    this.waiting = null;
  }

  /**
   * Solve a problem; one that still waits is dropped.
   * @param {Problem} problem
   * @returns {boolean} whether it is solved already
   */
  solve(problem) {
    this.waiting = null;
    if (problem.numStates <= MAX_MAIN_THREAD_STATES[problem.kind]) {
      // A solution of an earlier problem is of no use any more.
      this.running = null;
      const start = performance.now();
      const solution = solve(problem);
      this.show(problem, solution, { milliseconds: performance.now() - start, worker: false });
      return true;
    }
    if (this.running) this.waiting = problem;
    else this.start(problem);
    return false;
  }

  /** @param {Problem} problem */
  start(problem) {
    const worker = this.getWorker();
    this.running = problem;
    this.startTime = performance.now();
    // One solution per problem, in the order of the problems.
    this.id = (this.id ?? 0) + 1;
    worker.postMessage({ id: this.id, problem });
  }

  getWorker() {
    if (this.worker) return this.worker;
    const url = URL.createObjectURL(new Blob([this.workerSource], { type: "text/javascript" }));
    this.worker = new Worker(url);
    this.worker.addEventListener("message", ({ data }) => this.receive(data));
    return this.worker;
  }

  /** @param {{ id: number, solution: Solution }} answer */
  receive({ id, solution }) {
    if (id !== this.id) return;
    const [problem, next] = [this.running, this.waiting];
    [this.running, this.waiting] = [null, null];
    if (next) this.start(next);
    const milliseconds = performance.now() - this.startTime;
    if (problem) this.show(problem, solution, { milliseconds, worker: true });
  }
}

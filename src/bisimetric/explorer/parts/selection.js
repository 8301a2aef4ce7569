// The selection: a source state, a second one to compare it with, and one or two distances.

export class Selection {
  constructor(first = 0) {
    this.first = first;
    this.distance = 0;
    this.comparison = 1;
    /** @type {number | null} */
    this.second = null;
    // Whether a click or Enter selected the first state, and the second; arrows only move them.
    this.hasSource = false;
    this.hasSecond = false;
    this.listeners = [];
  }

  listen(listener) {
    this.listeners.push(listener);
  }

  set(changes) {
    Object.assign(this, changes);
    for (const listener of this.listeners) listener(changes);
  }

  // A click or Enter: first the source, then the second state, then a source again.
  select(state) {
    if (!this.hasSource || this.hasSecond)
      this.set({ first: state, second: null, hasSource: true, hasSecond: false });
    else this.set({ second: state, hasSecond: true });
  }

  // An arrow key: moves the state that is being selected.
  move(state) {
    if (this.hasSource) this.set({ second: state, hasSecond: false });
    else this.set({ first: state });
  }

  selectPair(first, second) {
    this.set({ first, second, hasSource: true, hasSecond: true });
  }

  clear() {
    this.set({ second: null, hasSource: false, hasSecond: false });
  }

  get cursor() {
    return this.second ?? this.first;
  }
}

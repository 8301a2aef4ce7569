// The selection: a source state, a second one to compare it with, and one or two distances.

export class Selection {
  constructor(first = 0) {
    Object.assign(this, { first, second: null, distance: 0, comparison: 1 });
    // Whether a click or Enter selected the first state, and the second; arrows only move them.
    Object.assign(this, { hasSource: false, hasSecond: false });
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

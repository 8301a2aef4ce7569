// What is picked: a first state to look from, a second one to compare it with, and the tables.

export class Selection {
  constructor(first = 0) {
    Object.assign(this, { first, second: null, pinned: false, table: 0, other: 1 });
    this.listeners = [];
  }

  listen(listener) {
    this.listeners.push(listener);
  }

  set(changes) {
    Object.assign(this, changes);
    for (const listener of this.listeners) listener(changes);
  }

  // A click or Enter: first the state to look from, then the one to compare it with, then again.
  pick(state) {
    if (!this.pinned || this.second !== null)
      this.set({ first: state, second: null, pinned: true });
    else this.set({ second: state });
  }

  // An arrow key: moves the state that is being chosen.
  move(state) {
    if (this.pinned) this.set({ second: state });
    else this.set({ first: state });
  }

  choose(first, second) {
    this.set({ first, second, pinned: true });
  }

  clear() {
    this.set({ second: null, pinned: false });
  }

  get cursor() {
    return this.second ?? this.first;
  }
}

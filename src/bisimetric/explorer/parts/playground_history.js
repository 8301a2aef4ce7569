// Undo and redo.

const MAX_SNAPSHOTS = 500;

/**
 * Snapshots of what was shown, the current one included.
 * @template T
 */
export class History {
  /** @param {T} snapshot the first one */
  constructor(snapshot) {
    this.snapshots = [snapshot];
    this.position = 0;
  }

  get canUndo() {
    return this.position > 0;
  }

  get canRedo() {
    return this.position < this.snapshots.length - 1;
  }

  /**
   * Add a snapshot; those that were undone are gone. One that equals the current one is not added.
   * @param {T} snapshot
   */
  push(snapshot) {
    if (JSON.stringify(snapshot) === JSON.stringify(this.snapshots[this.position])) return;
    this.snapshots = [...this.snapshots.slice(0, this.position + 1), snapshot].slice(
      -MAX_SNAPSHOTS,
    );
    this.position = this.snapshots.length - 1;
  }

  /** @returns {T | null} the snapshot before, or null */
  undo() {
    return this.canUndo ? this.snapshots[--this.position] : null;
  }

  /** @returns {T | null} the snapshot after, or null */
  redo() {
    return this.canRedo ? this.snapshots[++this.position] : null;
  }
}

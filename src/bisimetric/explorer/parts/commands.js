// The command that explains a pair of states, for a POSIX shell.

// Quote an argument, as Python's `shlex.quote` does.
export const quoteArgument = (text) =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;

// The command, or null if the distance was not read from a file or a state cannot be named.
export function createExplainCommand({ command }, first, second) {
  const states = command && [first, second].map((s) => command.states[s]);
  if (!states || states.includes(null)) return null;
  // A file such as -d.npz is no option.
  const file = command.file.startsWith("-") ? `./${command.file}` : command.file;
  return ["bisimetric", "explain", ...[file, ...states].map(quoteArgument)].join(" ");
}

// What is drawn over the colours of a map: outlines, names, goals, and the paths of an explanation.
import { drawing } from "./elements.js";

const MOST_NAMED = 60; // points whose names are written
const LONGEST_NAME = 16;
const LAST_AMONG_POINTS = 12; // steps: a path jumps about among points, and soon covers them all

// An outline of a state, in two lines so that it shows on every colour.
export function outline(places, state, kind, units) {
  const [x, y] = [places.x[state], places.y[state]];
  // Inside of a large cell, around a small one.
  const far = units(18) < 1 ? 0.46 : 0.5 + units(2);
  return ["halo", kind].map((name) =>
    places.cells
      ? drawing("rect", {
          class: name,
          x: x - far,
          y: y - far,
          width: 2 * far,
          height: 2 * far,
          rx: 0.06,
        })
      : drawing("circle", { class: name, cx: x, cy: y, r: places.size / 2 + units(4) }),
  );
}

// A shape over a state of which nothing is known.
export function veil(places, s) {
  const [x, y] = [places.x[s], places.y[s]];
  return places.cells
    ? drawing("rect", { x: x - 0.5, y: y - 0.5, width: 1, height: 1, "data-state": s })
    : drawing("circle", { cx: x, cy: y, r: places.size / 2, "data-state": s });
}

// Stars on goals: in the corner of a cell that is large enough for a number beside it.
export function stars(places, goals, units) {
  const small = places.cells && units(18) > 1;
  const size = places.cells ? Math.max(0.26, units(11)) : places.size * 1.1;
  const far = places.cells && !small ? 0.41 - size / 2 : 0;
  return goals.map((goal) =>
    drawing(
      "text",
      { class: "goal", x: places.x[goal] - far, y: places.y[goal] - far, "font-size": size },
      "★",
    ),
  );
}

// The names of a few points, where they cover neither a point nor another name.
export function pointNames(places, names, units) {
  if (places.cells || places.count > MOST_NAMED) return [];
  const size = units(12);
  const radius = places.size / 2;
  const taken = names.map((_, s) => box(places.x[s], places.y[s], 2 * radius, 2 * radius));
  const found = [];
  names.forEach((name, s) => {
    const [width, far] = [0.62 * size * name.length, radius + units(7)];
    if (name.length > LONGEST_NAME) return;
    const free = [
      [0, far + size / 2],
      [0, -far - size / 2],
      [far + width / 2, 0],
      [-far - width / 2, 0],
    ]
      .map(([dx, dy]) => box(places.x[s] + dx, places.y[s] + dy, width, size))
      .find((each) => inside(places, each) && !taken.some((other) => overlap(each, other)));
    if (!free) return;
    taken.push(free);
    found.push(drawing("text", { class: "part", x: free.x, y: free.y, "font-size": size }, name));
  });
  return found;
}

const box = (x, y, width, height) => ({ x, y, width, height });
const overlap = (one, two) =>
  2 * Math.abs(one.x - two.x) < one.width + two.width &&
  2 * Math.abs(one.y - two.y) < one.height + two.height;
const inside = ({ width, height }, each) =>
  each.x - each.width / 2 >= 0 &&
  each.x + each.width / 2 <= width &&
  each.y - each.height / 2 >= 0 &&
  each.y + each.height / 2 <= height;

// Lines between states that are matched, the ends of the first one and of the second: in a cell with
// a number above that number and below it.
export function matchLines(places, matches, units, numbered = false) {
  const gap = numbered ? 0.31 : 0;
  return matches.flatMap(({ states, mass }) => {
    const [[x1, y1], [x2, y2]] = states.map((s, i) => [
      places.x[s],
      places.y[s] + (i ? gap : -gap),
    ]);
    const lines = ["match under", "match"].map((kind) =>
      drawing("line", { class: kind, x1, y1, x2, y2, "stroke-opacity": 0.4 + 0.6 * mass }),
    );
    const r = units(4);
    return [
      ...lines,
      drawing("circle", { class: "end first", cx: x1, cy: y1, r }),
      drawing("circle", { class: "end second", cx: x2, cy: y2, r }),
    ];
  });
}

// The path of the first or the second state, with a numbered head: beside the centre, and in a cell
// with a number above that number or below it.
export function route(places, states, kind, units, numbered = false) {
  if (!states.length) return [];
  const gap = numbered ? 0.31 : places.cells ? 0.13 : places.size * 0.18;
  const side = kind === "first" ? -gap : gap;
  const shown = places.cells ? states : states.slice(-LAST_AMONG_POINTS);
  // Stars of goals are in the upper left corner of a numbered cell.
  const points = shown.map((s) => [places.x[s] + (numbered ? -side : side), places.y[s] + side]);
  const line = points.map((point) => point.map((x) => x.toFixed(3)).join(",")).join(" ");
  const [x, y] = points[points.length - 1];
  const size = numbered ? 0.15 : places.cells ? 0.2 : places.size * 0.5;
  const radius = Math.max(size, units(numbered ? 6.5 : 8));
  return [
    drawing("polyline", { class: "halo", points: line }),
    drawing("polyline", { class: kind, points: line }),
    drawing("circle", { class: `walker ${kind}`, cx: x, cy: y, r: radius }),
    drawing(
      "text",
      { class: "walker", x, y, "font-size": 1.35 * radius },
      kind === "first" ? "1" : "2",
    ),
  ];
}

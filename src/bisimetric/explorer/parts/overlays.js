// Drawn over the colours of a map: outlines, names, goals, and the paths of an explanation.
import { createSvgElement } from "./elements.js";

const MAX_NAMED_POINTS = 60; // with more points, no names are written
const MAX_NAME_LENGTH = 16;
const MAX_POINT_STEPS = 12; // steps of a path between points; more of them would cover the points

// An outline of a state, in two lines so that it shows on every colour.
export function drawOutline(layout, state, kind, toUnits) {
  const [x, y] = [layout.x[state], layout.y[state]];
  // Inside of a large cell, around a small one.
  const offset = toUnits(18) < 1 ? 0.46 : 0.5 + toUnits(2);
  return ["halo", kind].map((name) =>
    layout.hasCells
      ? createSvgElement("rect", {
          class: name,
          x: x - offset,
          y: y - offset,
          width: 2 * offset,
          height: 2 * offset,
          rx: 0.06,
        })
      : createSvgElement("circle", { class: name, cx: x, cy: y, r: layout.size / 2 + toUnits(4) }),
  );
}

// A shape over an unknown state.
export function drawUnknown(layout, s) {
  const [x, y] = [layout.x[s], layout.y[s]];
  return layout.hasCells
    ? createSvgElement("rect", { x: x - 0.5, y: y - 0.5, width: 1, height: 1, "data-state": s })
    : createSvgElement("circle", { cx: x, cy: y, r: layout.size / 2, "data-state": s });
}

// Stars on goals: in the corner of a cell that also has room for a number.
export function drawGoals(layout, goals, toUnits) {
  const small = layout.hasCells && toUnits(18) > 1;
  const size = layout.hasCells ? Math.max(0.26, toUnits(11)) : layout.size * 1.1;
  const offset = layout.hasCells && !small ? 0.41 - size / 2 : 0;
  return goals.map((goal) =>
    createSvgElement(
      "text",
      { class: "goal", x: layout.x[goal] - offset, y: layout.y[goal] - offset, "font-size": size },
      "★",
    ),
  );
}

// Discs on absorbing states that are no goals, such as holes; placed as the stars are.
export function drawHoles(layout, holes, toUnits) {
  const small = layout.hasCells && toUnits(18) > 1;
  const r = layout.hasCells ? Math.max(0.08, toUnits(3.5)) : layout.size * 0.25;
  const offset = layout.hasCells && !small ? 0.38 - r : 0;
  return holes.map((s) =>
    createSvgElement("circle", {
      class: "hole",
      "data-state": s,
      cx: layout.x[s] - offset,
      cy: layout.y[s] - offset,
      r,
    }),
  );
}

// Walls between cells, the letters of stands, outlines of places and triangles of headings: in the
// lower right corner of a cell that also has room for a number.
export function drawLandmarks(layout, { walls, stands, headings, places }, toUnits) {
  const small = toUnits(30) > 1;
  const [size, offset] = small ? [0.3, 0] : [0.085, 0.375];
  const shapes = { east: [1, 0], south: [0, 1], west: [-1, 0], north: [0, -1] };
  const drawHeading = (heading, s) => {
    if (heading === null) return [];
    const [dx, dy] = shapes[heading].map((part) => part * size);
    const [x, y] = [layout.x[s] + offset, layout.y[s] + offset];
    const points = `${x + dx},${y + dy} ${x - dx - dy},${y - dy + dx} ${x - dx + dy},${y - dy - dx}`;
    return [createSvgElement("polygon", { class: `heading ${heading}`, points })];
  };
  return [
    ...places.map(([y, x]) =>
      createSvgElement("rect", { class: "place", x, y, width: 2, height: 2 }),
    ),
    ...walls.map(([x1, y1, x2, y2]) => createSvgElement("line", { class: "wall", x1, y1, x2, y2 })),
    ...stands.map(([s, letter]) =>
      createSvgElement(
        "text",
        { class: "stand", x: layout.x[s], y: layout.y[s], "font-size": 0.75 },
        letter,
      ),
    ),
    ...headings.flatMap(drawHeading),
  ];
}

// The names of points, where they overlap neither a point nor another name.
export function drawPointNames(layout, names, toUnits) {
  if (layout.hasCells || layout.count > MAX_NAMED_POINTS) return [];
  const size = toUnits(12);
  const radius = layout.size / 2;
  const occupied = names.map((_, s) => createBox(layout.x[s], layout.y[s], 2 * radius, 2 * radius));
  const found = [];
  names.forEach((name, s) => {
    const [width, offset] = [0.62 * size * name.length, radius + toUnits(7)];
    if (name.length > MAX_NAME_LENGTH) return;
    const free = [
      [0, offset + size / 2],
      [0, -offset - size / 2],
      [offset + width / 2, 0],
      [-offset - width / 2, 0],
    ]
      .map(([dx, dy]) => createBox(layout.x[s] + dx, layout.y[s] + dy, width, size))
      .find((each) => isInside(layout, each) && !occupied.some((other) => overlaps(each, other)));
    if (!free) return;
    occupied.push(free);
    found.push(
      createSvgElement("text", { class: "part", x: free.x, y: free.y, "font-size": size }, name),
    );
  });
  return found;
}

const createBox = (x, y, width, height) => ({ x, y, width, height });
const overlaps = (one, two) =>
  2 * Math.abs(one.x - two.x) < one.width + two.width &&
  2 * Math.abs(one.y - two.y) < one.height + two.height;
const isInside = ({ width, height }, each) =>
  each.x - each.width / 2 >= 0 &&
  each.x + each.width / 2 <= width &&
  each.y - each.height / 2 >= 0 &&
  each.y + each.height / 2 <= height;

// Lines between matched states, with dots at both ends: in a cell with a number, above that number
// for the first state and below it for the second.
export function drawMatches(layout, matches, toUnits, hasNumbers = false) {
  const gap = hasNumbers ? 0.31 : 0;
  return matches.flatMap(({ states, mass }) => {
    const [[x1, y1], [x2, y2]] = states.map((s, i) => [
      layout.x[s],
      layout.y[s] + (i ? gap : -gap),
    ]);
    const lines = ["match under", "match"].map((kind) =>
      createSvgElement("line", { class: kind, x1, y1, x2, y2, style: `--mass: ${mass}` }),
    );
    const r = toUnits(4);
    return [
      ...lines,
      createSvgElement("circle", { class: "end first", cx: x1, cy: y1, r }),
      createSvgElement("circle", { class: "end second", cx: x2, cy: y2, r }),
    ];
  });
}

// The path of the first or the second state, with a numbered head: shifted to one side, and in a cell
// with a number above that number or below it.
export function drawPath(layout, states, kind, toUnits, hasNumbers = false) {
  if (!states.length) return [];
  const gap = hasNumbers ? 0.31 : layout.hasCells ? 0.13 : layout.size * 0.18;
  const side = kind === "first" ? -gap : gap;
  const shown = layout.hasCells ? states : states.slice(-MAX_POINT_STEPS);
  // Stars of goals are in the upper left corner of a numbered cell.
  const points = shown.map((s) => [layout.x[s] + (hasNumbers ? -side : side), layout.y[s] + side]);
  const line = points.map((point) => point.map((x) => x.toFixed(3)).join(",")).join(" ");
  const [x, y] = points[points.length - 1];
  const size = hasNumbers ? 0.15 : layout.hasCells ? 0.2 : layout.size * 0.5;
  const radius = Math.max(size, toUnits(hasNumbers ? 6.5 : 8));
  return [
    createSvgElement("polyline", { class: "halo", points: line }),
    createSvgElement("polyline", { class: kind, points: line }),
    createSvgElement("circle", { class: `path-head ${kind}`, cx: x, cy: y, r: radius }),
    createSvgElement(
      "text",
      { class: "path-head", x, y, "font-size": 1.35 * radius },
      kind === "first" ? "1" : "2",
    ),
  ];
}

// A number of every pair of states against another one, with the diagonal.

const MOST_DOTS = 3000;
const CELLS = 60;

// What is drawn of all pairs: points are x, y, x, y, ...; of many, how many are in a cell.
export function gathered(points) {
  let [wide, tall] = [0, 0];
  for (let i = 0; i < points.length; i += 2) {
    wide = Math.max(wide, points[i]);
    tall = Math.max(tall, points[i + 1]);
  }
  const high = Math.max(wide, tall) || 1;
  const dense = points.length / 2 > MOST_DOTS;
  return { high, tall, dense, all: dense ? binned(points, high, tall || 1) : dots(points) };
}

// `own` are the pairs of the picked state: x, y and a name; `shade` darkens what must be empty.
export function densePlot(host, { high, tall, dense, all }, { x, y, own, label, shade = false }) {
  const chart = Plot.plot({
    width: Math.min(1000, Math.max(280, host.clientWidth - 32)),
    height: 340,
    marginLeft: 56,
    marginBottom: 42,
    style: { background: "none", fontSize: "12px" },
    x: { label: x, domain: [0, high], nice: true, grid: true },
    y: {
      label: y,
      domain: [0, shade ? Math.max(tall * 1.08, 1e-9) : high],
      nice: true,
      grid: true,
    },
    color: { type: "log", scheme: "blues", range: [0.25, 1] },
    clip: true,
    ariaLabel: label,
    marks: [
      shade
        ? Plot.areaY(
            [
              [0, 0],
              [high * 1.2, high * 1.2],
            ],
            {
              x: (p) => p[0],
              y1: (p) => p[1],
              y2: high * 1.2,
              fill: "#d55e00",
              fillOpacity: 0.12,
              clip: true,
            },
          )
        : null,
      Plot.line(
        [
          [0, 0],
          [high * 1.2, high * 1.2],
        ],
        { stroke: "#d55e00", strokeDasharray: "5 4", clip: true },
      ),
      dense
        ? Plot.rect(all, {
            x1: "x1",
            x2: "x2",
            y1: "y1",
            y2: "y2",
            fill: "count",
            inset: 0,
            title: (cell) => `${cell.count.toLocaleString("en-GB")} pairs`,
          })
        : Plot.dot(all, { x: "x", y: "y", r: 2.2, fill: "#3b7dd8", fillOpacity: 0.55 }),
      Plot.dot(own, {
        x: "x",
        y: "y",
        r: own.length > 300 ? 1.6 : 3.2,
        fill: "#e4007c",
        stroke: "white",
        strokeWidth: own.length > 300 ? 0 : 0.6,
        clip: true,
      }),
      Plot.tip(
        own,
        Plot.pointer({
          x: "x",
          y: "y",
          title: (pair) => `${pair.name}\n${pair.x.toPrecision(5)}, ${pair.y.toPrecision(5)}`,
        }),
      ),
    ],
  });
  host.append(chart);
}

function dots(points) {
  const found = [];
  for (let i = 0; i < points.length; i += 2) found.push({ x: points[i], y: points[i + 1] });
  return found;
}

// How many pairs are in each cell of a raster.
function binned(points, wide, tall) {
  const counts = new Map();
  const place = (value, most) => Math.min(CELLS - 1, Math.floor((value / most) * CELLS));
  for (let i = 0; i < points.length; i += 2) {
    const key = place(points[i], wide) * CELLS + place(points[i + 1], tall);
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return [...counts].map(([key, count]) => {
    const [i, j] = [Math.floor(key / CELLS), key % CELLS];
    return {
      x1: (i * wide) / CELLS,
      x2: ((i + 1) * wide) / CELLS,
      y1: (j * tall) / CELLS,
      y2: ((j + 1) * tall) / CELLS,
      count,
    };
  });
}

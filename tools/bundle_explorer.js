// Bundle the explorer's scripts: `node tools/bundle_explorer.js` writes the folder `built` of the
// package, `--check` only compares it with what would be written.
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const ROOT = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const EXPLORER = path.join(ROOT, "src", "bisimetric", "explorer");
const PARTS = path.join(EXPLORER, "parts");
const BUILT = path.join(EXPLORER, "built");
const LICENCES = "charts.LICENSE";

// Entry points by the name of their bundle. A page that draws charts is preceded by `charts.js`.
const ENTRIES = {
  charts: "charts.js",
  page: "main.js",
  notebook: "notebook.js",
  episode: "episode.js",
  playground: "playground.js",
  playground_worker: "playground_worker.js",
};

const OPTIONS = {
  absWorkingDir: ROOT,
  bundle: true,
  format: "iife",
  target: "es2022",
  minify: true,
  charset: "utf8",
  legalComments: "none",
  metafile: true,
  write: false,
  logLevel: "warning",
};

// Elsewhere, the exports of `charts.js` are those of the global variable that its bundle defines.
const chartsFromGlobal = {
  name: "charts-from-global",
  setup(builder) {
    builder.onResolve({ filter: /\/charts\.js$/ }, () => ({ path: "charts", namespace: "global" }));
    builder.onLoad({ filter: /.*/, namespace: "global" }, () => ({
      contents: "module.exports = bisimetricCharts;",
    }));
  },
};

async function bundle(name) {
  const isCharts = name === "charts";
  const result = await build({
    ...OPTIONS,
    entryPoints: [path.join(PARTS, ENTRIES[name])],
    globalName: isCharts ? "bisimetricCharts" : undefined,
    plugins: isCharts ? [] : [chartsFromGlobal],
  });
  const [{ inputs }] = Object.values(result.metafile.outputs);
  const used = Object.keys(inputs).filter((input) => inputs[input].bytesInOutput > 0);
  return { text: result.outputFiles[0].text, inputs: used };
}

// The licences of the packages in a bundle: each text once, after the packages that have it and their
// copyright.
async function collectLicences(inputs) {
  const folders = inputs.map((input) => input.match(/^.*node_modules\/(?:@[^/]+\/)?[^/]+/)?.[0]);
  const holders = new Map();
  for (const folder of [...new Set(folders.filter(Boolean))].sort()) {
    const { name, version } = JSON.parse(await readFile(path.join(ROOT, folder, "package.json")));
    const files = await readdir(path.join(ROOT, folder));
    const file = files.find((each) => /^licen[cs]e/i.test(each));
    if (!file) throw new Error(`${folder} has no licence file; add its text to ${LICENCES}.`);
    const licence = (await readFile(path.join(ROOT, folder, file), "utf8")).trim();
    const [, title, copyright, text] = licence.match(
      /^(The MIT License.*\n+)?(Copyright .*)\n\n([^]*)$/,
    );
    const body = `${title ?? ""}${text}`;
    holders.set(body, [...(holders.get(body) ?? []), `${name} ${version}: ${copyright}`]);
  }
  return [...holders].map(([text, names]) => `${names.join("\n")}\n\n${text}\n`).join("\n\n");
}

// All files of the folder, by name.
async function createFiles() {
  const files = new Map();
  for (const name of Object.keys(ENTRIES)) {
    const { text, inputs } = await bundle(name);
    if (name === "charts") {
      const licences = await collectLicences(inputs);
      if (licences.includes("*/")) throw new Error("a licence ends the comment that it is in.");
      files.set(LICENCES, licences);
      // A page is a copy of them, and includes their licences.
      files.set("charts.js", `/*\n${licences}*/\n${text}`);
    } else if (inputs.some((input) => input.includes("node_modules")))
      throw new Error(`${name}.js contains a package; import it in charts.js.`);
    else files.set(`${name}.js`, text);
  }
  return files;
}

async function main(isCheck) {
  const files = await createFiles();
  const present = await readdir(BUILT).catch(() => []);
  const different = [];
  for (const name of new Set([...files.keys(), ...present])) {
    const before = present.includes(name) ? await readFile(path.join(BUILT, name), "utf8") : null;
    if (before !== (files.get(name) ?? null)) different.push(name);
  }
  if (isCheck) {
    if (!different.length) return;
    console.error(
      `src/bisimetric/explorer/built: ${different.join(", ")} differ from a new build; run make explorer and commit them.`,
    );
    process.exitCode = 1;
    return;
  }
  await mkdir(BUILT, { recursive: true });
  for (const name of different)
    if (files.has(name)) await writeFile(path.join(BUILT, name), files.get(name));
    else await rm(path.join(BUILT, name));
  for (const [name, text] of files) console.log(`${name}: ${(text.length / 1e3).toFixed(0)} kB`);
}

await main(process.argv.includes("--check"));

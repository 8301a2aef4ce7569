// What a page shows, in the fragment of its address: reloads and links show the same again.
import { createCopyButton } from "./clipboard.js";
import { parseIndex, parseIndices } from "./numbers.js";

const WRITE_MILLISECONDS = 350; // browsers limit how often an address changes

const fields = new URLSearchParams(window.location.hash.slice(1));
let timer = null;
let isDue = false;

// Whether the page was opened without a fragment, and so without anything to show.
export const isOpenedAfresh = ![...fields].length;

export const readField = (name) => fields.get(name);
export const readIndex = (name, count) => parseIndex(fields.get(name) ?? "", count);
export const readIndices = (name, count) => parseIndices(fields.get(name) ?? "", count);

// Change some fields; null removes one.
export function writeFields(changes) {
  for (const [name, value] of Object.entries(changes))
    if (value === null) fields.delete(name);
    else fields.set(name, value);
  isDue = true;
  if (timer === null) writeAddress();
}

function writeAddress() {
  timer = null;
  if (!isDue) return;
  isDue = false;
  timer = setTimeout(writeAddress, WRITE_MILLISECONDS);
  try {
    window.history.replaceState(null, "", `#${fields}`);
  } catch {
    // A document without an address, such as about:blank.
  }
}

// A link to this page in the same address bar is shown as if it were opened.
window.addEventListener("hashchange", () => window.location.reload());

// A button that copies the address; `announce(text)` is for screen readers.
export const createLinkButton = (announce, prepare = () => {}) =>
  createCopyButton("copy link", {
    name: "copy-link",
    getText: () => {
      prepare();
      return `${window.location.href.split("#")[0]}#${fields}`;
    },
    announce,
    what: "link",
    failed: "in the address bar",
  });

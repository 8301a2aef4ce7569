// What a page shows, in the fragment of its address: reloads and links show the same again.
import { createElement } from "./elements.js";
import { parseIndex, parseIndices } from "./numbers.js";

const WRITE_MILLISECONDS = 350; // browsers limit how often an address changes

const fields = new URLSearchParams(window.location.hash.slice(1));
let timer = null;
let isDue = false;

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
export function createLinkButton(announce) {
  const button = createElement("button", { type: "button", class: "copy-link" }, "copy link");
  button.addEventListener("click", async () => {
    const link = `${window.location.href.split("#")[0]}#${fields}`;
    const isCopied = await copyText(link);
    announce(isCopied ? "link copied" : "the link is in the address bar");
    button.textContent = isCopied ? "✓ copied" : "in the address bar";
    setTimeout(() => (button.textContent = "copy link"), 2000);
  });
  return button;
}

async function copyText(text) {
  try {
    await window.navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

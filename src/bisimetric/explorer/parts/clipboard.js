// Copy text to the clipboard.
import { createElement } from "./elements.js";

export const SHOWN_MILLISECONDS = 2000; // of a message on a button

// A button that copies `getText()`. `failed` says where the text is if the browser does not allow it,
// `announce(text)` is for screen readers.
export function createCopyButton(label, { name, getText, announce, what, failed }) {
  const button = createElement("button", { type: "button", class: name }, label);
  button.addEventListener("click", async () => {
    const isCopied = await copyText(getText());
    announce(isCopied ? `${what} copied` : `the ${what} is ${failed}`);
    button.textContent = isCopied ? "✓ copied" : failed;
    setTimeout(() => (button.textContent = label), SHOWN_MILLISECONDS);
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

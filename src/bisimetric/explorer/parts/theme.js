// Dark or light: the system's setting, or that of the button.
import { createElement } from "./elements.js";
import { readField, writeFields } from "./fragment.js";

const systemDark = window.matchMedia("(prefers-color-scheme: dark)");
const rootData = document.documentElement.dataset;

if (["light", "dark"].includes(readField("theme"))) rootData.theme = readField("theme");

export const isDark = () => (rootData.theme ? rootData.theme === "dark" : systemDark.matches);

// `onChange()` redraws what depends on the theme.
export function createThemeButton(onChange) {
  const button = createElement("button", {
    type: "button",
    class: "theme",
    onclick: () => {
      rootData.theme = isDark() ? "light" : "dark";
      writeFields({ theme: rootData.theme });
      update();
    },
  });
  const updateLabel = () => (button.textContent = isDark() ? "☀ light" : "☾ dark");
  const update = () => {
    updateLabel();
    onChange();
  };
  systemDark.addEventListener("change", update);
  updateLabel();
  return button;
}

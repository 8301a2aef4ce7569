// Dark or light: as the system is, until the button says otherwise.
import { element } from "./elements.js";

const systemDark = window.matchMedia("(prefers-color-scheme: dark)");
const chosen = document.documentElement.dataset;

export const isDark = () => (chosen.theme ? chosen.theme === "dark" : systemDark.matches);

// `changed()` draws again what has other colours then.
export function themeButton(changed) {
  const button = element("button", {
    type: "button",
    class: "theme",
    onclick: () => {
      chosen.theme = isDark() ? "light" : "dark";
      turned();
    },
  });
  const said = () => (button.textContent = isDark() ? "☀ light" : "☾ dark");
  const turned = () => {
    said();
    changed();
  };
  systemDark.addEventListener("change", turned);
  said();
  return button;
}

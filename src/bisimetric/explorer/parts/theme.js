// Dark or light: as the system is, until the button says otherwise.
import { element } from "./elements.js";

export function themeButton(changed) {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const is = () => root.dataset.theme ?? (dark.matches ? "dark" : "light");
  const button = element("button", {
    type: "button",
    class: "theme",
    onclick: () => {
      root.dataset.theme = is() === "dark" ? "light" : "dark";
      said();
      changed();
    },
  });
  const said = () => {
    button.textContent = is() === "dark" ? "☀ light" : "☾ dark";
  };
  dark.addEventListener("change", said);
  said();
  return button;
}

// The explorer's scripts run in a browser, the tools and tests in Node.
import js from "@eslint/js";
import globals from "globals";

const RULES = {
  eqeqeq: "error",
  "no-shadow": "error",
  "no-unused-vars": ["error", { argsIgnorePattern: "^_" }],
  "no-use-before-define": ["error", { functions: false, classes: false, variables: false }],
  "no-var": "error",
  "object-shorthand": "error",
  "prefer-const": "error",
};

export default [
  { ignores: ["**/built/**", "site/", ".venv*/", "node_modules/"] },
  js.configs.recommended,
  {
    files: ["src/bisimetric/explorer/parts/*.js"],
    languageOptions: { globals: globals.browser },
    rules: RULES,
  },
  {
    files: ["tools/*.js", "tests/explorer/parts/*.js", "eslint.config.js"],
    languageOptions: { globals: globals.node },
    rules: RULES,
  },
];

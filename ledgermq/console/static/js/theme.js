// Runs before the first paint, so that the page does not flash in the other theme.
(() => {
  let chosen = "";
  try {
    chosen = localStorage.getItem("ledgermq.theme") || "";
  } catch {
    // Storage may be shut off; the system's theme is then what counts.
  }
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
})();

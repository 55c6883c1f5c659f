// What it draws later: headings that follow the first level, names of tables, and code that scrolls.
new MutationObserver(() => {
  document.querySelectorAll("h3, h4, h5").forEach((h) => h.setAttribute("aria-level", Number(h.tagName[1]) - 1));
  document.querySelectorAll("table.responses-table").forEach((table) => table.setAttribute("aria-label", table.id));
  document.querySelectorAll("pre.microlight").forEach((code) => code.setAttribute("tabindex", "0"));
}).observe(document.getElementById("swagger-ui"), { childList: true, subtree: true });

"use strict";
// Searches the config, and switches its defaults on and off.
(() => {
  const table = document.querySelector("table.config");
  if (!table) return;
  const rows = [...table.tBodies[0].rows].map((row) => ({ row, text: row.textContent.toLowerCase(), isDefault: row.classList.contains("default") }));
  const filter = document.createElement("p");
  filter.className = "filter";
  const search = Object.assign(document.createElement("input"), { type: "search", placeholder: "search keys, values, origins" });
  search.setAttribute("aria-label", "search the config");
  const box = Object.assign(document.createElement("input"), { type: "checkbox", autocomplete: "off" });
  const label = document.createElement("label");
  label.append(box, " defaults too");
  const told = document.createElement("span");
  told.setAttribute("role", "status");
  filter.append(search, label, told);
  table.closest(".scroll").before(filter);
  const apply = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const { row, text, isDefault } of rows) {
      row.hidden = (isDefault && !box.checked && words.length === 0) || !words.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    told.textContent = `${shown} of ${rows.length}`;
  };
  search.addEventListener("input", apply);
  box.addEventListener("change", apply);
  apply();
})();

"use strict";
// What the page does beyond standing there: the values under the pointer, in all charts at once, and a search in the config.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const count = data.x.length;
  const byId = (id) => document.getElementById(id);
  const plots = [...document.querySelectorAll(".plot")];
  const charts = [...document.querySelectorAll(".chart")].map((figure) => ({
    values: data.charts[figure.dataset.chart],
    shown: [...figure.querySelectorAll(".values b")],
  }));
  let at = count - 1;

  function nearest(x) {  // the bucket whose middle is nearest
    let low = 0, high = count - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (data.x[middle] < x) low = middle + 1; else high = middle;
    }
    return low > 0 && x - data.x[low - 1] < data.x[low] - x ? low - 1 : low;
  }

  function show(bucket, plot) {
    at = Math.max(0, Math.min(count - 1, bucket));
    byId("now-step").textContent = data.step[at];
    byId("now-when").textContent = data.when[at];
    byId("now-skipped").textContent = data.skipped[at];
    for (const chart of charts) chart.shown.forEach((value, line) => { value.textContent = chart.values[line][at]; });
    document.body.classList.toggle("is-pointing", plot !== null);
    for (const one of plots) {
      one.classList.toggle("pointed", one === plot);
      one.querySelector(".cursor").style.left = data.x[at] * 100 + "%";
      const step = one.querySelector(".cursor-step");
      step.style.left = data.x[at] * 100 + "%";
      step.textContent = data.step[at];
    }
  }

  for (const plot of plots) {
    const follow = (event) => {
      const box = plot.getBoundingClientRect();
      show(nearest((event.clientX - box.left) / box.width), plot);
    };
    plot.addEventListener("pointermove", follow);
    plot.addEventListener("pointerdown", follow);
    plot.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") show(count - 1, null); });
    plot.addEventListener("blur", () => show(count - 1, null));
    plot.addEventListener("keydown", (event) => {
      const far = Math.max(1, Math.round(count / 20));
      const to = { ArrowLeft: at - 1, ArrowRight: at + 1, PageUp: at - far, PageDown: at + far, Home: 0, End: count - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      show(to, plot);
    });
  }

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

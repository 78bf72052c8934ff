"use strict";
// From a mark of a chart, or a row of a table, to its step: all charts zoom to the steps around it.
const kAround = 10;  // places on each side

function jump(step, chart) {
  const place = placeOf(step), around = kAround * (end[place] - begin[place] + 1);
  view([step - around, step + around]);
  show(rowOf(groups, place), chart);
}

if (charts.length > 0) {
  document.querySelector("main").addEventListener("click", (event) => {
    const step = event.target.closest("[data-step]")?.dataset.step;
    if (step === undefined || String(getSelection())) return;  // text that is being selected is not a click
    byId("charts").scrollIntoView();
    charts[0].plot.focus({ preventScroll: true });  // so that its keys work
    jump(Number(step), charts[0]);
  });
  root.classList.add("jumps");
}

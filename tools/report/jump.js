"use strict";
// From a mark of a chart, or a row of a table, to its step: all charts zoom to the steps around it.
const kAround = 10;  // places on each side

function jump(step, chart) {
  const place = placeOf(step), around = kAround * (end[place] - begin[place] + 1);
  view([step - around, step + around]);
  show(rowOf(groups, place), chart);
}

// In each row of a table, the numbers below "step" and "at step" become buttons. The row itself has the last of them: the
// step of the largest value, not of the smallest.
function markSteps(table) {
  const columns = [...table.tHead.rows[0].cells].flatMap((head, i) => (/^(at )?step$/.test(head.textContent) ? [i] : []));
  for (const row of columns.length > 0 ? table.tBodies[0].rows : []) {
    for (const cell of columns.map((i) => row.cells[i]).filter((one) => /^[0-9,]+$/.test(one?.textContent))) {
      cell.dataset.step = row.dataset.step = cell.textContent.replaceAll(",", "");
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: cell.textContent });
      cell.replaceChildren(button);
    }
  }
}

if (charts.length > 0) {
  document.querySelectorAll("main table").forEach(markSteps);
  document.querySelector("main").addEventListener("click", (event) => {
    const step = event.target.closest("[data-step]")?.dataset.step;
    if (step === undefined || String(getSelection())) return;  // text that is being selected is not a click
    byId("charts").scrollIntoView();
    charts[0].plot.focus({ preventScroll: true });  // so that its keys work
    jump(Number(step), charts[0]);
  });
}

"use strict";
// Uses the page of a run with a validation loss, or of two runs: their lines, names, marks, and the steps that a click shows.
(async () => {
  const [loss] = charts, best = charts.find(({ lines }) => lines.some((line) => line.best));
  const state = () => [windows().join(), byId("now-step").textContent, byId("whole").hidden ? "whole" : "zoomed"];
  write("charts", charts.map(({ figure }) => figure.dataset.chart).join(", "));
  write("lines of the loss", loss.lines.map(({ name }) => name).join(", "));
  write("drawn", ["--c0", "--c1", "--c2"].map((colour) => drawn(loss, colour)).join(", "));
  write("ends of the loss", [...loss.plot.querySelectorAll(".end")].map((end) => end.textContent).join(", "));
  write("best", best.lines.filter((line) => line.best).map((line) => `${line.name} ${line.best[1]} at ${begin[line.best[0]]}`).join(", "));
  write("names cut", [...document.querySelectorAll(".end")].filter((end) => end.scrollWidth > end.clientWidth).length);
  const tops = (selector) => [...document.querySelectorAll(".chart:not(.wide)")].map((figure) => Math.round(figure.querySelector(selector).getBoundingClientRect().top));
  const pairs = (all) => all.filter((top, i) => i % 2 === 1 && all[i - 1] !== top).length;
  write("rows that are not aligned", pairs(tops("figcaption")), pairs(tops(".plot")));

  fire(loss, "mousemove", 100);
  write("pointed", byId("now-step").textContent, byId("now-when").textContent);
  write("values", [...best.figure.querySelectorAll(".values b")].map((value) => value.textContent).join(", "));
  clickOn(loss, { x: loss.graph.toDomXCoord(100), y: 60 });
  write("a click beside the marks", ...state());
  clickOn(best, best.targets[best.targets.length - 1]);
  write("a click on the best", ...state(), best.plot.className);
  view(whole);
  clickOn(loss, loss.targets[2]);
  write("a click on a skipped step", ...state(), byId("now-skipped").textContent.slice(0, 40));
  press(loss, "Escape");
  write("Escape", ...state());
  const row = [...document.querySelectorAll("#numbers tr[data-step]")].find((one) => one.cells[0].textContent.startsWith("Gradient norm"));
  row.cells[0].click();
  write("a row of the numbers", ...state(), row.dataset.step, document.activeElement === loss.plot);
  const button = row.querySelector("button");  // the smallest value
  button.click();
  write("its smallest", ...state(), button.textContent);
  document.querySelector("#skipped tr[data-step]").click();
  write("a row of the skipped", ...state());
  press(loss, "Escape");

  // With the best value at the right edge.
  let label = "none";
  const fill = CanvasRenderingContext2D.prototype.fillText, area = best.graph.getArea();
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    const half = this.measureText(text).width / 2;
    if (text.startsWith("best ")) label = x - half < area.x - 0.1 || x + half > area.x + area.w + 0.1 ? "cut" : "whole";
    fill.call(this, text, x, y);
  };
  const at = begin[best.lines.find((line) => line.best).best[0]];
  view([at - 20, at]);
  write("label of the best", label);
  done();
})();

"use strict";
// Uses the page as a reader would, with the mouse and the keys, and writes down what each chart then shows.
(async () => {
  const [loss, rates] = charts;
  write("charts", charts.map(({ figure }) => figure.dataset.chart).join(", "));
  write("lines", charts.map((chart) => drawn(chart, "--c0")).join(", "));
  write("skipped marks", charts.map((chart) => drawn(chart, "--alarm")).join(", "));
  write("whole run", windows());
  write("ends of the lines", [...document.querySelectorAll(".plot .end")].map((end) => end.textContent).join(", "));

  fire(loss, "mousemove", 72);
  write("pointed", byId("now-step").textContent, byId("now-when").textContent, byId("now-skipped").textContent);
  write("values", [...document.querySelectorAll(".values b")].map((value) => value.textContent).join(", "));

  fire(loss, "mousedown", 60), fire(loss, "mousemove", 70, document), fire(loss, "mousemove", 80, document), fire(loss, "mouseup", 80, document);
  await settled();
  write("zoomed in all", windows(), byId("whole").hidden);
  press(rates, "Home");
  write("first step there", byId("now-step").textContent);
  const strip = document.querySelector(".track > div");
  write("strip moved", Math.round(parseFloat(strip.style.left) / 10), Math.round(parseFloat(strip.style.width) / 10));
  fire(rates, "dblclick", 70);
  write("zoomed out", windows(), byId("whole").hidden);
  press(rates, "Home"), press(rates, "ArrowRight"), press(rates, "+");
  write("by keys", byId("now-step").textContent, windows().length);
  byId("whole").click();
  write("by the button", windows());

  loss.log.click();
  write("logarithmic", loss.graph.getOption("logscale"), drawn(loss, "--c0"));
  loss.log.click();
  dispatchEvent(new Event("beforeprint"));
  write("printing", loss.plot.clientWidth < 700, drawn(loss, "--c0"), css("--paper"));
  dispatchEvent(new Event("afterprint"));

  // A run of many steps: means and extremes, and single steps where there is room.
  const many = { mean: Array.from({ length: 201 }, (_, i) => (i === 150 ? 99 : i === 40 ? null : 1)), bad: [40] };
  const groups10 = groupsOf(whole, 10), narrow = groupsOf([140.5, 160.5], 20);
  const points = pointsOf(many, groups10);
  write("groups", groups10.length <= 12, Math.min(...points.map(({ low }) => low)), Math.max(...points.map(({ high }) => high)), points.filter(({ isBad }) => isBad).length);
  write("zoomed groups", narrow.filter(({ from, to, x }) => to - from === 1 && x > 140 && x < 161).length);
  write("numbers", [0, 2.31449, 8123.4, 0.0003, 9.999e-4, -1234567, 12345678].map(numberText).join(", "));

  done();
})();

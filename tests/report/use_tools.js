"use strict";
// What the scripts that use a page as a reader would have in common; they write down what each chart then shows.
const seen = [];
const write = (name, ...values) => seen.push(`${name}: ${values.join(" | ")}`);
const windows = () => [...new Set(charts.map(({ graph }) => graph.xAxisRange().map((step) => step.toFixed(1)).join(" to ")))];
const fire = (chart, kind, step, on = chart.graph.mouseEventElement_) => {
  const box = chart.plot.getBoundingClientRect();
  on.dispatchEvent(new MouseEvent(kind, { bubbles: true, cancelable: true, view: window, detail: 1, clientX: box.left + chart.graph.toDomXCoord(step), clientY: box.top + 60 }));
};
const press = (chart, key) => chart.plot.dispatchEvent(new KeyboardEvent("keydown", { key }));
const settled = () => new Promise((resolve) => setTimeout(resolve, 50));
// Clicks on a mark of a chart, as a mouse does: it moves there first.
const clickOn = (chart, target) => {
  const box = chart.plot.getBoundingClientRect(), place = { clientX: box.left + target.x, clientY: box.top + target.y };
  for (const kind of ["mousemove", "mousedown", "mouseup"]) {
    const on = kind === "mouseup" ? document : chart.graph.mouseEventElement_;
    on.dispatchEvent(new MouseEvent(kind, { bubbles: true, cancelable: true, view: window, detail: 1, ...place }));
  }
};
// How many pixels of a colour of the palette a chart has, by what is at least there: none, some, many.
const drawn = (chart, colour) => {
  const canvas = chart.plot.querySelector("canvas"), wanted = css(colour).match(/\w\w/g).map((digits) => parseInt(digits, 16));
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let count = 0;
  for (let i = 0; i < pixels.length; i += 4) count += wanted.every((value, band) => Math.abs(value - pixels[i + band]) < 8) && pixels[i + 3] > 200;
  return count > 300 ? "many" : count > 3 ? "some" : "none";
};


const done = () => {
  const pre = document.createElement("pre");
  pre.id = "seen";
  pre.textContent = "\n" + seen.join("\n") + "\n";
  document.body.append(pre);
};

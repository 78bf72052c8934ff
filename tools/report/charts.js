"use strict";
// The charts, drawn by dygraphs, on one axis of steps: zooming or pointing in one applies to all.
const root = document.documentElement;
const byId = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
const pixels = (name) => parseFloat(css(name)) * parseFloat(getComputedStyle(root).fontSize);  // a length in rem as pixels
const make = (parent, tag, className, text = "") => {
  const element = Object.assign(document.createElement(tag), { className, textContent: text });
  return parent.appendChild(element);
};

let shown = whole;   // the window of steps
let groups = [];     // groups of places in the window and around it
const compares = !data.time;  // several runs: a line's colour is that of its run
let isMoving = false;  // whether view() is moving the charts, and not the library
let moving = 0;        // a timer: the library has moved a chart, and the others follow

// A window that the charts accept: within the run, and at least two steps wide.
function windowOf([low, high]) {
  const more = Math.max(0, 2 - (high - low)) / 2;
  return [Math.max(low - more, whole[0]), Math.min(high + more, whole[1])];
}

class Chart {
  constructor(figure) {
    const plot = figure.querySelector(".plot");
    Object.assign(this, { figure, plot, ...data.charts[figure.dataset.chart] });
    if (this.stack) this.lines.reverse();  // the library stacks the last line lowest
    this.targets = [];  // marks that a click zooms to: place, x, y
    this.isWide = figure.classList.contains("wide");
    this.values = [...figure.querySelectorAll(".values b")];
    this.log = figure.querySelector("figcaption input");
    this.gather();
    this.graph = new Dygraph(make(plot, "div", "canvas"), this.rows, {
      labels: ["step", ...this.curves.map((_, index) => String(index))],
      customBars: !this.stack, stackedGraph: this.stack, connectSeparatedPoints: true, includeZero: this.scale === "zero",
      legend: "never", animatedZooms: false, xRangePad: 0, panEdgeFraction: 1e-9, highlightCircleSize: 3, gridLineWidth: 1,
      dateWindow: shown, rightGap: pixels("--right"),
      interactionModel: this.interaction(),
      axes: {
        x: { drawGrid: false, pixelsPerLabel: 70, axisLabelWidth: 90, ticker: stepTicks, axisLabelFormatter: integers.format },
        y: { axisLabelWidth: pixels("--left") - 6, pixelsPerLabel: this.isWide ? 40 : 30, ticker: (...given) => this.ticks(...given) },
      },
      ...this.range(), ...this.paint(),
      plotter: [Dygraph.Plotters.fillPlotter, Dygraph.Plotters.errorPlotter, Dygraph.Plotters.linePlotter, (set) => {
        if (set.seriesIndex === set.seriesCount - 1) this.marks(set.drawingContext, set.plotArea, set.dygraph);
      }],
      drawCallback: (graph, isFirst) => this.drawn(graph, isFirst),
      highlightCallback: (event, x, points, row) => show(row, this),
      unhighlightCallback: () => show(null),
      clickCallback: (event) => this.click(event),
    });
    this.cursor = make(plot, "i", "cursor");
    this.cursorStep = make(plot, "b", "cursor-step");
    this.log?.addEventListener("change", () => this.graph.updateOptions({ logscale: this.log.checked, ...this.range() }));
    plot.addEventListener("mousemove", (event) => plot.classList.toggle("on-mark", Boolean(this.targetAt(event))));
    plot.addEventListener("keydown", (event) => this.key(event));
    plot.addEventListener("blur", () => show(null));
  }

  // The library's curves and rows: one curve for each line, and one for its smoothed values.
  gather() {
    this.points = this.lines.map((line) => pointsOf(line, groups));
    this.curves = this.lines.flatMap((line, index) => {
      const points = this.points[index];
      if (this.stack) return [{ line, values: points.map(({ mean }) => mean || 0) }];
      const bars = ({ mean, low, high }) => (mean === null || Number.isNaN(mean) ? [mean, mean, mean] : [low, mean, high]);
      const own = { line, values: points.map(bars), isRaw: Boolean(line.smooth) };
      if (!line.smooth) return [own];
      line.smoothed = smoothOf(line, groups);
      return [own, { line, values: line.smoothed.map((value) => [value, value, value]) }];
    });
    this.rows = groups.map((group, row) => [group.x, ...this.curves.map((curve) => curve.values[row])]);
    // Draws a single step as a bar.
    if (this.stack && groups.length === 1) this.rows = [-0.2, 0.2].map((by) => [this.rows[0][0] + by, ...this.rows[0].slice(1)]);
  }

  // The range of the vertical axis. An axis from zero leaves out a few values far above the others;
  // they are marked at the top.
  range() {
    const inside = groups.map((group, row) => ({ group, row })).filter(({ group }) => group.x >= shown[0] && group.x <= shown[1]);
    const highs = inside.map(({ row }) => {
      const all = this.points.map((points) => points[row]).filter(({ mean }) => Number.isFinite(mean));
      return this.stack ? all.reduce((sum, { mean }) => sum + mean, 0) : Math.max(...all.map(({ high }) => high));
    });
    const known = highs.filter(Number.isFinite).sort((a, b) => a - b);
    const lows = inside.flatMap(({ row }) => this.points.map((points) => points[row].low)).filter(Number.isFinite);
    const highest = known[known.length - 1] ?? 0, lowest = Math.min(...lows);
    this.top = Infinity;
    const above = this.figure.querySelector(".above");
    above.textContent = "";
    if (this.scale === "two" && lowest > 0) {
      this.powers = [Math.floor(Math.log2(lowest)) - 1, Math.ceil(Math.log2(highest)) + 1];
      return { logscale: true, valueRange: this.powers.map((power) => 2 ** power) };
    }
    this.powers = null;
    const usual = known.length < 20 ? highest : known[Math.round(0.97 * (known.length - 1))] * 1.1;
    if (this.scale !== "zero" || !(usual > 0) || highest <= 2.5 * usual) return { valueRange: null };
    this.top = usual;
    const count = known.filter((high) => high > usual).length;
    const one = isExact && inside.every(({ group }) => group.to - group.from === 1) ? "step" : "place";
    above.textContent = `${count} ${one}${count === 1 ? "" : "s"} above the axis, up to ${numberText(highest)}`;
    return { valueRange: [Math.min(0, lowest), usual] };
  }

  paint() {
    const series = {}, opaque = (curve) => css(`--c${curve.line.colour}`);
    this.curves.forEach((curve, index) => {
      const faint = curve.isRaw ? (compares ? "44" : "88") : "";
      series[index] = {
        color: opaque(curve) + faint, strokeWidth: this.stack ? 0.5 : curve.isRaw ? 1 : 1.6, drawPoints: Boolean(curve.line.sparse), pointSize: 2.5,
      };
    });
    return {
      series, colors: this.curves.map(opaque), fillAlpha: this.stack ? 1 : 0.18, gridLineColor: css("--rule"), axisLineColor: css("--edge"),
    };
  }

  ticks(low, high, length, options, graph, values) {
    if (this.powers) {
      const [first, last] = this.powers, every = Math.max(1, Math.ceil((last - first) / 6)), ticks = [];
      for (let power = Math.ceil(first / every) * every; power <= last; power += every) ticks.push({ v: 2 ** power, label: powerText(power) });
      return ticks;
    }
    const ticks = Dygraph.numericTicks(low, high, length, options, graph, values);
    const step = ticks.length > 1 ? Math.abs(ticks[1].v - ticks[0].v) : 1, largest = Math.max(Math.abs(low), Math.abs(high));
    const isPlain = !this.log?.checked && largest >= 1e-3 && largest < 1e7;
    const decimals = Math.min(8, Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
    const text = (value) => value.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
    for (const tick of ticks) if (tick.label !== "") tick.label = isPlain ? text(tick.v) : numberText(Math.abs(tick.v) < step * 1e-6 ? 0 : tick.v);
    return ticks;
  }

  // Draws skipped steps, resumes, thresholds, and values that the axis cannot show, over the curves.
  marks(context, area, graph) {
    const right = area.x + area.w, bottom = area.y + area.h;
    const x = (step) => graph.toDomXCoord(step);
    const stroke = (colour, width, dashes, lines) => {
      Object.assign(context, { strokeStyle: css(colour), lineWidth: width });
      context.setLineDash(dashes);
      context.beginPath();
      for (const [x0, y0, x1, y1] of lines) context.moveTo(x0, y0), context.lineTo(x1, y1);
      context.stroke();
    };
    context.save();
    this.targets = [];
    const inside = groups.map((group, row) => ({ group, row, x: x(group.x) })).filter((at) => at.x >= area.x - 1 && at.x <= right + 1);
    const resumed = data.resumed.filter(([step]) => step - 0.5 >= shown[0] && step - 0.5 <= shown[1]);
    stroke("--quiet", 1, [5, 4], this.thresholds.map((value) => graph.toDomYCoord(value)).filter((y) => y >= area.y && y <= bottom).map((y) => [area.x, y, right, y]));
    stroke("--quiet", 1, [2, 3], resumed.map(([step]) => [x(step - 0.5), area.y, x(step - 0.5), bottom]));
    stroke("--alarm", 2, [], inside.filter(({ group }) => group.skipped.count > 0).map((at) => [at.x, bottom, at.x, bottom - 7]));
    const isAbove = ({ row }) => (this.stack ? this.points.reduce((sum, points) => sum + (points[row].mean || 0), 0) : Math.max(...this.points.map((points) => points[row].high))) > this.top;
    const above = inside.filter(isAbove);
    stroke("--ink", 2, [], above.map((at) => [at.x, area.y, at.x, area.y + 5]));
    for (const at of above) this.targets.push({ place: this.highestIn(at.group), x: at.x, y: area.y + 3 });
    for (const at of inside) if (at.group.skipped.count > 0) this.targets.push({ place: at.group.skipped.place, x: at.x, y: bottom - 3 });
    Object.assign(context, { font: `11px ${getComputedStyle(document.body).fontFamily}`, fillStyle: css("--quiet"), textBaseline: "top" });
    let last = -Infinity;
    for (const [step, label] of this.isWide ? resumed : []) {
      if (x(step) - last > 50) context.fillText(label, (last = x(step)) + 5, area.y + 2);
    }
    Object.assign(context, { font: "bold 14px sans-serif", fillStyle: css("--alarm"), textAlign: "center" });
    for (const at of inside) {
      const line = this.lines.find((_, index) => this.points[index][at.row].isBad);
      if (!line) continue;
      context.fillText("×", at.x, area.y - 1);
      this.targets.push({ place: line.bad.find((place) => place >= at.group.from), x: at.x, y: area.y + 6 });
    }
    this.bestMarks(context, area, graph);
    context.restore();
  }

  // A ring around the smallest value of each line that has one.
  bestMarks(context, area, graph) {
    Object.assign(context, { lineWidth: 2, font: `11px ${getComputedStyle(document.body).fontFamily}`, textBaseline: "bottom", textAlign: "center" });
    context.setLineDash([]);
    for (const line of this.lines) {
      if (!line.best) continue;
      const [place, value] = line.best, x = graph.toDomXCoord(groups[rowOf(groups, place)].x), y = graph.toDomYCoord(value);
      if (x < area.x - 1 || x > area.x + area.w + 1 || !(y >= area.y && y <= area.y + area.h)) continue;
      context.strokeStyle = css(`--c${line.colour}`);
      context.beginPath();
      context.arc(x, y, 5, 0, 2 * Math.PI);
      context.stroke();
      if (!compares) {
        context.fillStyle = css("--ink");
        const label = `best ${numberText(value)}`, half = context.measureText(label).width / 2;
        context.fillText(label, Math.min(Math.max(x, area.x + half), area.x + area.w - half), y - 8);
      }
      this.targets.push({ place, x, y });
    }
  }

  // The place of a group where some line, or the stack, is highest.
  highestIn({ from, to }) {
    let found = from, highest = -Infinity;
    for (let place = from; place < to; ++place) {
      const values = this.lines.map((line) => (line.high ?? line.mean)[place] ?? -Infinity);
      const high = this.stack ? values.reduce((sum, value) => sum + (Number.isFinite(value) ? value : 0), 0) : Math.max(...values);
      if (high > highest) highest = high, found = place;
    }
    return found;
  }

  targetAt(event) {
    const box = this.plot.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const distance = (target) => Math.hypot(target.x - x, target.y - y);
    return this.targets.filter((target) => distance(target) < 10).sort((a, b) => distance(a) - distance(b))[0];
  }

  click(event) {
    const target = this.targetAt(event);
    if (target) jump(begin[target.place], this);
  }

  drawn(graph, isFirst) {
    this.endLabels(graph);
    if (isFirst || isMoving) return;
    const range = graph.xAxisRange();
    if (Math.abs(range[0] - shown[0]) + Math.abs(range[1] - shown[1]) < 1e-6 * (shown[1] - shown[0])) return;
    clearTimeout(moving);  // only the last of several drawings in a row counts
    moving = setTimeout(() => view(range));
  }

  // Puts the name of each line at its end, or its last value; moves them apart if they would
  // overlap.
  endLabels(graph) {
    for (const old of this.plot.querySelectorAll(".end")) old.remove();
    const area = graph.getArea(), ends = [];
    const isIn = (row) => groups[row].x >= shown[0] && groups[row].x <= shown[1];
    let below = 0;
    for (let index = this.lines.length; index-- > 0;) {
      const line = this.lines[index], means = line.smooth && !this.stack ? line.smoothed : this.points[index].map(({ mean }) => mean);
      let row = groups.length - 1;
      while (row >= 0 && !(isIn(row) && Number.isFinite(means[row]))) --row;
      if (row < 0) continue;
      const value = this.stack ? below + means[row] / 2 : means[row];
      below += means[row];
      if (this.stack && graph.toDomYCoord(0) - graph.toDomYCoord(means[row]) < 0.035 * area.h) continue;  // too thin for a name
      const text = line.name && !this.ends ? line.name : numberText(means[row]);
      ends.push({ y: Math.min(Math.max(graph.toDomYCoord(value), area.y), area.y + area.h), text, line });
    }
    ends.sort((a, b) => a.y - b.y);
    ends.forEach((end, i) => { if (i > 0) end.y = Math.max(end.y, ends[i - 1].y + 15); });
    for (let i = ends.length, limit = area.y + area.h; i-- > 0; limit = ends[i].y - 15) ends[i].y = Math.min(ends[i].y, limit);
    for (const { y, text, line } of ends) {
      const label = make(this.plot, "span", "end");
      label.style.top = `${y}px`;
      if (line.name) make(label, "i", `chip c${line.colour}`);
      label.append(text);
    }
  }

  // The library's interaction, except that a double click applies to all charts, and a single
  // finger scrolls the page and shows values.
  interaction() {
    const usual = Dygraph.defaultInteractionModel;
    return {
      ...usual,
      dblclick: () => view(whole),
      touchstart: (event, graph, context) => {
        if (event.touches.length > 1) return usual.touchstart(event, graph, context);
        const x = graph.toDataXCoord(event.touches[0].clientX - this.plot.getBoundingClientRect().left);
        show(Math.min(groups.length - 1, firstOf(groups.length, (row) => groups[row].x >= x)), this);
      },
      touchmove: (event, graph, context) => { if (event.touches.length > 1) usual.touchmove(event, graph, context); },
    };
  }

  key(event) {
    const first = firstOf(groups.length, (row) => groups[row].x >= shown[0]), last = firstOf(groups.length, (row) => groups[row].x > shown[1]) - 1;
    const far = Math.max(1, Math.round((last - first) / 20)), middle = groups[at].x, width = (shown[1] - shown[0]) / 2;
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, PageUp: at - far, PageDown: at + far, Home: first, End: last }[event.key];
    const zoom = { "+": [middle - width / 2, middle + width / 2], "-": [middle - width * 2, middle + width * 2], Escape: whole }[event.key];
    if (to === undefined && !zoom) return;
    event.preventDefault();
    if (zoom) view(zoom);
    if (zoom) return show(Math.min(groups.length - 1, firstOf(groups.length, (row) => groups[row].x >= middle)), this);
    show(Math.max(first, Math.min(last, to)), this);
  }

  // The value of a line at the last step that has one, with this step if it is not the row's own.
  lastKnown(index, row) {
    let known = row;
    while (known > 0 && !Number.isFinite(this.points[index][known].mean)) --known;
    const text = readout(this.points[index][known], false);
    return known === row || text === "–" ? text : `${text} (step ${stepsText(groups[known])})`;
  }

  // isPointing: the row is under the pointer, and not only the last one.
  show(row, isPointing) {
    const hasRange = !this.stack && (!isExact || groups[row].to - groups[row].from > 1);
    const texts = this.lines.map((line, index) => {
      let own = row;  // a shorter run among others ends before the last row
      while (compares && !isPointing && own > 0 && this.points[index][own].mean === null) --own;
      const value = line.sparse ? this.lastKnown(index, row) : readout(this.points[index][own], hasRange);
      return line.smooth ? [value, readout({ mean: line.smoothed[own] }, false)] : [value];
    });
    if (this.stack) texts.reverse();  // the caption lists them from the lowest
    texts.flat().forEach((text, index) => { this.values[index].textContent = text; });
    const x = this.graph.toDomXCoord(groups[row].x);
    this.cursor.style.left = this.cursorStep.style.left = `${x}px`;
    this.cursorStep.textContent = stepsText(groups[row]);
  }
}

const powerText = (power) => "2" + [...String(power)].map((digit) => (digit === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit])).join("");

function stepTicks(low, high, length, options, graph, values) {
  return Dygraph.numericTicks(low, high, length, options, graph, values).filter(({ v }) => Number.isInteger(v) && v >= begin[0] && v <= end[places - 1]);
}

let charts = [];
let at = 0;  // the row under the pointer, or the last one

function show(row, pointed = null) {
  const last = firstOf(groups.length, (i) => groups[i].x > shown[1]) - 1;
  at = Math.max(0, Math.min(groups.length - 1, row ?? last));
  byId("now-step").textContent = stepsText(groups[at]);
  byId("now-when").textContent = whenText(groups[at]);
  byId("now-skipped").textContent = skippedText(groups[at]);
  document.body.classList.toggle("is-pointing", pointed !== null);
  for (const chart of charts) {
    chart.show(at, pointed !== null);
    chart.plot.classList.toggle("pointed", chart === pointed);
    if (chart === pointed) continue;
    if (pointed) chart.graph.setSelection(at); else chart.graph.clearSelection();
  }
}

// The strip above the charts, on the same axis: its places are fractions of the way from the first
// step to the last.
function moveStrip() {
  const width = shown[1] - shown[0], first = begin[0], length = end[places - 1] - first || 1;
  for (const track of document.querySelectorAll(".track > div")) {
    track.style.width = `${100 * length / width}%`;
    track.style.left = `${100 * (first - shown[0]) / width}%`;
  }
  const skips = byId("skips");
  skips?.replaceChildren();
  for (const group of skips ? groups.filter(({ skipped }) => skipped.count > 0) : []) {
    make(skips, "i", "skip").style.left = `${100 * (group.x - first) / length}%`;
  }
}

function view(range) {
  shown = windowOf(range);
  groups = groupsOf(shown);
  for (const group of groups) group.skipped = skippedIn(group);
  isMoving = true;
  for (const chart of charts) {
    chart.gather();
    chart.graph.updateOptions({ file: chart.rows, dateWindow: shown, ...chart.range() });
  }
  isMoving = false;
  byId("whole").hidden = shown[0] <= whole[0] && shown[1] >= whole[1];
  moveStrip();
  show(null);
}

function repaint() {
  isMoving = true;
  for (const chart of charts) chart.graph.updateOptions({ ...chart.paint(), rightGap: pixels("--right") });
  isMoving = false;
}

// The names at the ends of lines are shown whole: the margin on the right is as wide as the widest.
function fitNames() {
  const context = document.createElement("canvas").getContext("2d"), rem = parseFloat(getComputedStyle(root).fontSize);
  context.font = `${0.6875 * rem}px ${getComputedStyle(document.body).fontFamily}`;
  const names = Object.values(data.charts).filter(({ ends }) => !ends).flatMap(({ lines }) => lines.map(({ name }) => name)).filter(Boolean);
  const widest = Math.max(0, ...names.map((name) => context.measureText(name).width)) / rem + 1.7;  // with its chip and the gap
  root.style.setProperty("--names", `${Math.min(14, Math.max(4.9, widest)).toFixed(2)}rem`);
}

if (places > 0 && byId("whole")) {
  fitNames();
  groups = groupsOf(shown);
  for (const group of groups) group.skipped = skippedIn(group);
  charts = [...document.querySelectorAll(".chart")].map((figure) => new Chart(figure));
  moveStrip();
  show(null);
  byId("whole").addEventListener("click", () => view(whole));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  // Paper is light, and narrower than a screen: a canvas does not follow by itself.
  const print = (isPrinting) => {
    root.classList.toggle("printing", isPrinting);
    repaint();
    for (const chart of charts) chart.graph.resize();
    for (const canvas of document.querySelectorAll(".plot canvas")) {  // Chromium prints a canvas empty until its drawing is read
      const context = canvas.getContext("2d");
      context.putImageData(context.getImageData(0, 0, canvas.width, canvas.height), 0, 0);
    }
  };
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
}

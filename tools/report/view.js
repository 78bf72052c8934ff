"use strict";
// The visible data: the page's places (see data.h) within a window of steps, gathered into as many
// groups as a chart has pixels. A run of any length then draws fast, and a zoom shows its single
// steps.
const data = JSON.parse(document.getElementById("data").textContent);

const summed = (gaps) => { let sum = 0; return gaps.map((gap) => (sum += gap)); };
const begin = summed(data.begin), end = data.end ? summed(data.end) : begin;
const places = begin.length;
const isExact = !data.end;  // one step per place
const room = places > 1 ? Math.max(0.5, 0.005 * (end[places - 1] - begin[0])) : 1;  // for marks at the ends
const whole = [begin[0] - room, end[places - 1] + room];

// Groups of places, each from its first place to the one before `to`: fine within the window,
// coarse around it, where the library only needs to know that the run continues.
function groupsOf([low, high], wanted = 600) {
  const groups = [];
  const fine = Math.max(1, (high - low + 1) / wanted), coarse = Math.max(1, (whole[1] - whole[0] + 1) / wanted);
  let bound = -Infinity;
  for (let place = 0; place < places; ++place) {
    const step = begin[place];
    if (step >= bound) {
      const within = step >= low && step <= high;
      const width = within ? fine : coarse;
      bound = (Math.floor((step - low) / width) + 1) * width + low;
      if (step < low) bound = Math.min(bound, low);
      groups.push({ from: place, to: place, x: 0 });
    }
    groups[groups.length - 1].to = place + 1;
  }
  for (const group of groups) group.x = (begin[group.from] + end[group.to - 1]) / 2;
  return groups;
}

// A line's values by group: the mean of the places, their smallest and largest value; mean is null
// if no value is known, NaN if the recorded values are not finite.
function pointsOf(line, groups) {
  const bad = line.badPlaces ??= new Set(line.bad);
  return groups.map(({ from, to }) => {
    let sum = 0, count = 0, low = Infinity, high = -Infinity, isBad = false;
    for (let place = from; place < to; ++place) {
      if (bad.size && bad.has(place)) isBad = true;
      const value = line.mean[place];
      if (value === null) continue;
      sum += value, ++count;
      low = Math.min(low, line.low ? line.low[place] : value);
      high = Math.max(high, line.high ? line.high[place] : value);
    }
    return { mean: count ? sum / count : isBad ? NaN : null, low, high, isBad };
  });
}

// The last smoothed value in each group: of several runs, each has its own steps.
const smoothOf = (line, groups) => groups.map(({ from, to }) => {
  while (to > from + 1 && line.smooth[to - 1] === null) --to;
  return line.smooth[to - 1];
});

const rowOf = (groups, place) => firstOf(groups.length, (row) => groups[row].to > place);
const placeOf = (step) => Math.min(places - 1, firstOf(places, (place) => end[place] >= step));

// The first index from which `holds` is always true.
function firstOf(count, holds) {
  let low = 0, high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle; else low = middle + 1;
  }
  return low;
}

function skippedIn({ from, to }) {
  const at = firstOf(data.skipped.length, (i) => data.skipped[i][0] >= from);
  const stop = firstOf(data.skipped.length, (i) => data.skipped[i][0] >= to);
  let count = 0;
  for (let i = at; i < stop; ++i) count += data.skipped[i][1];
  return { count, place: count > 0 ? data.skipped[at][0] : -1, reason: count > 0 ? data.reasons[data.skipped[at][2]] ?? "" : "" };
}

// ---- numbers and words, as in the tables -----------------------------------------------------------------------------
const integers = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });

function numberText(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e-3 && size < 1e7) return (size >= 999.95 ? integers : digits).format(value);
  const [mantissa, exponent] = value.toExponential(2).split("e");
  return Number(mantissa) + "e" + Number(exponent);
}

// "2.31", or "2.31 (2.1–2.6)" if one point stands for several values.
function readout(point, hasRange) {
  if (point.mean === null) return "–";
  if (Number.isNaN(point.mean)) return "not finite";
  const text = numberText(point.mean);
  if (!hasRange) return text;
  const low = numberText(point.low), high = numberText(point.high);
  return low === high ? text : `${text} (${low}–${high})`;
}

function stepsText({ from, to }) {
  const first = integers.format(begin[from]), last = integers.format(end[to - 1]);
  return first === last ? first : `${first}–${last}`;
}

function whenText({ to }) {
  if (!data.time) return "";  // compared runs have different clocks
  const seconds = data.time[to - 1], two = (number) => String(number).padStart(2, "0");
  const clock = `${Math.floor(seconds / 3600)}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
  const runs = data.runs.filter(([place]) => place < to);
  return data.resumed.length > 0 ? `${clock} into run ${runs[runs.length - 1][1]}` : clock;
}

function skippedText(group) {
  const { count, reason } = group.skipped;
  if (count === 0) return "";
  if (count > 1) return `${integers.format(count)} steps skipped; the first: ${reason}`;
  return reason ? `skipped: ${reason}` : "skipped";
}

"use strict";
// Charts as SVG. Whatever comes from a run becomes a text node or an attribute, never markup.

const SVG = "http://www.w3.org/2000/svg";
const CHART = { width: 640, height: 200, left: 62, right: 10, top: 10, bottom: 24 };

const MIN_POINTS = 5; // fewer are no course

function draw(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function bytes(number) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let at = 0;
  while (Math.abs(number) >= 999.5 && at < units.length - 1) { number /= 1000; at += 1; }
  return (at ? number.toPrecision(3) : Math.round(number)) + " " + units[at];
}

function count(number) {
  return number === null || number === undefined ? "–" : Math.round(number).toLocaleString("en-US");
}

function short(number) {
  const units = ["", "K", "M", "G", "T"];
  let at = 0;
  while (Math.abs(number) >= 999.5 && at < units.length - 1) { number /= 1000; at += 1; }
  return (at ? String(Number(number.toPrecision(3))) : String(Number(number.toPrecision(3)))) + units[at];
}

function duration(seconds) {
  if (seconds === null || seconds === undefined || !isFinite(seconds)) return "?";
  if (seconds < 60) return seconds < 10 ? seconds.toFixed(1) + " s" : Math.round(seconds) + " s";
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? minutes + " min" : Math.floor(minutes / 60) + " h " + (minutes % 60) + " min";
}

function percent(share, digits) {
  return share === null || share === undefined ? "–" : (100 * share).toFixed(digits === undefined ? 0 : digits) + "%";
}

// `lines`: [{name, points: [[x, y], ...]}]; gaps are points whose y is null.
function lineChart(title, lines, options) {
  const all = lines.flatMap((line) => line.points).filter((point) => point[1] !== null);
  if (all.length < MIN_POINTS) return null;
  const scale = (value) => (options.logarithmic ? Math.log10(Math.max(value, 1)) : value);
  const xs = all.map((point) => scale(point[0]));
  const low = options.from === undefined ? Math.min(...xs) : scale(options.from), high = Math.max(...xs);
  const top = Math.max(...all.map((point) => scaleY(point[1], options)), scaleY(options.limit || 0, options)) || 1;
  const { width, height, left, right, top: above, bottom } = CHART;
  const x = (value) => left + ((scale(value) - low) / (high - low || 1)) * (width - left - right);
  const y = (value) => height - bottom - (scaleY(value, options) / top) * (height - above - bottom);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0" });
  svg.append(...axes(options, top, all, x, y));
  lines.forEach((line, index) => {
    for (const part of unbroken(line.points)) {
      const path = part.map((point) => `${x(point[0]).toFixed(1)},${y(point[1]).toFixed(1)}`).join(" ");
      svg.append(draw("polyline", { points: path, fill: "none", "stroke-width": "2", class: "line" + (index % 6) }));
    }
  });
  if (options.limit) {
    svg.append(draw("line", { x1: left, x2: width - right, y1: y(options.limit), y2: y(options.limit), class: "limit" }));
  }
  addCursor(svg, title, lines, x, options);
  return svg;
}

function scaleY(value, options) {
  return options.logarithmic && !options.plainY ? Math.log10(Math.max(value, 1)) : value;
}

function axes(options, top, all, x, y) {
  const { width, height, left, right, bottom } = CHART;
  const shown = [];
  for (const share of [0, 0.5, 1]) {
    const value = options.logarithmic && !options.plainY ? 10 ** (top * share) : top * share;
    shown.push(draw("line", { x1: left, x2: width - right, y1: y(value), y2: y(value), class: "axis" }));
    shown.push(draw("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, options.showY(value)));
  }
  const first = options.from === undefined ? Math.min(...all.map((point) => point[0])) : options.from, last = Math.max(...all.map((point) => point[0]));
  shown.push(draw("text", { x: left, y: height - bottom + 16 }, options.showX(first)));
  shown.push(draw("text", { x: width - right, y: height - bottom + 16, "text-anchor": "end" }, options.showX(last)));
  if (options.logarithmic) shown.push(...logarithmicMarks(first, last, options, x));
  return shown;
}

// Marks at 1, 2, 5, 10, 20, ... tell a logarithmic axis from a plain one; labels keep clear of one another.
function logarithmicMarks(first, last, options, x) {
  const { width, height, left, right, top, bottom } = CHART, shown = [];
  let free = left + 40;
  for (let power = 1; power < last; power *= 10) {
    for (const value of [power, 2 * power, 5 * power].filter((mark) => mark > first && mark < last)) {
      const at = x(value);
      shown.push(draw("line", { x1: at, x2: at, y1: top, y2: height - bottom, class: "axis" }));
      if (at < free || at > width - right - 40) continue;
      shown.push(draw("text", { x: at, y: height - bottom + 16, "text-anchor": "middle" }, options.showX(value)));
      free = at + 40;
    }
  }
  return shown;
}

function unbroken(points) {
  const parts = [[]];
  for (const point of points) {
    if (point[1] === null) parts.push([]);
    else parts[parts.length - 1].push(point);
  }
  return parts.filter((part) => part.length > 0);
}

// A cursor that the pointer or the arrow keys move; what it stands at is said in the label.
function addCursor(svg, title, lines, x, options) {
  const places = lines[0].points.filter((point) => point[1] !== null).map((point) => point[0]);
  const cursor = draw("line", { y1: CHART.top, y2: CHART.height - CHART.bottom, class: "cursor", visibility: "hidden" });
  const words = draw("text", { x: CHART.width - CHART.right, y: CHART.top + 2, "text-anchor": "end", "dominant-baseline": "hanging" });
  let at = places.length - 1;
  const show = (isSeen) => {
    const values = lines.map((line) => line.points.find((point) => point[0] === places[at] && point[1] !== null));
    const said = values.map((point, index) => (point ? (lines.length > 1 ? lines[index].name + " " : "") + options.showY(point[1]) : ""));
    const text = said.filter(Boolean).join(", ") + " at " + options.showX(places[at]);
    svg.setAttribute("aria-label", title + ": " + text);
    if (!isSeen) return;
    cursor.setAttribute("x1", x(places[at]));
    cursor.setAttribute("x2", x(places[at]));
    cursor.setAttribute("visibility", "visible");
    words.replaceChildren(text);
  };
  svg.append(cursor, words);
  show(false);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -places.length, End: places.length }[event.key];
    if (!step) return;
    event.preventDefault();
    at = Math.max(0, Math.min(places.length - 1, at + step));
    show(true);
  });
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const wanted = ((event.clientX - box.left) / box.width) * CHART.width;
    at = places.reduce((best, place, index) => (Math.abs(x(place) - wanted) < Math.abs(x(places[best]) - wanted) ? index : best), 0);
    show(true);
  });
}

// `bars`: [[label, value], ...]
function barChart(title, bars, showValue) {
  const top = Math.max(...bars.map((bar) => bar[1]), 1);
  const { width, height, left, right, top: above, bottom } = CHART;
  const step = (width - left - right) / bars.length;
  const label = title + ": " + bars.map((bar) => bar[0] + ": " + showValue(bar[1])).join(", ");
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  svg.append(draw("text", { x: left - 6, y: above + 8, "text-anchor": "end" }, showValue(top)));
  bars.forEach(([name, value], index) => {
    const tall = (value / top) * (height - above - bottom);
    const bar = draw("rect", { x: left + index * step + 1, y: height - bottom - tall, width: Math.max(step - 2, 1), height: tall, class: "fill0" });
    bar.append(draw("title", {}, `${name}: ${showValue(value)}`));
    svg.append(bar);
    if (index % Math.ceil(bars.length / 9) === 0) {
      svg.append(draw("text", { x: left + index * step, y: height - bottom + 16 }, name));
    }
  });
  return svg;
}

// `parts`: [[label, value], ...] as one bar.
function stackedBar(title, parts) {
  const total = parts.reduce((sum, part) => sum + part[1], 0) || 1;
  const said = parts.map((part) => part[0] + " " + percent(part[1] / total)).join(", ");
  const svg = draw("svg", { viewBox: "0 0 640 26", role: "img", "aria-label": title + ": " + said });
  let at = 0;
  parts.forEach(([, value], index) => {
    const wide = (value / total) * 640;
    svg.append(draw("rect", { x: at, y: 0, width: wide, height: 26, class: "fill" + (index % 6) }));
    at += wide;
  });
  return svg;
}

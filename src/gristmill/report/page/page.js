"use strict";
// The page: figures of runs, from the JSON in this file (a report) or pushed by the server (a dash).
// Text of a corpus reaches the page through text nodes alone.

const embedded = document.getElementById("figures");
const runs = [];
let chosen = 0;
const main = document.getElementById("main");

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function facts(pairs) {
  const list = make("dl");
  for (const [name, value, key] of pairs) {
    if (value === null || value === undefined || value === "") continue;
    list.append(make("div", {}, make("dt", {}, name), make("dd", { "data-figure": key }, String(value))));
  }
  return list;
}

// `columns`: [[heading, class]]; a cell is text or an element.
function table(columns, rows, rowClass) {
  const head = make("tr", {}, ...columns.map(([name, kind]) => make("th", { class: kind, scope: "col" }, name)));
  const body = rows.map((row, index) =>
    make("tr", { class: rowClass ? rowClass(index) : null }, ...row.map((cell, place) => make("td", { class: columns[place][1] }, cell))));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
}

function when(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString();
}

function progressOf(run) {
  const now = run.now;
  if (run.state === "finished") return 1;
  return now && now.bytes_total ? Math.min(now.bytes_done / now.bytes_total, 1) : 0;
}

const SAYS = {
  waiting: "waiting for the run to begin", running: "running", finishing: "finishing", learning: "learning merges",
  stopped: "no news: stopped, or out of reach; the same command takes it up", failed: "ended, and units failed", finished: "finished",
};

function renderProgress(run) {
  const now = run.now || {}, share = progressOf(run);
  const kind = run.state === "failed" || run.state === "stopped" ? "bad" : run.state === "finished" ? "good" : "";
  const isOver = run.state === "finished" || run.state === "failed";
  return [
    make("p", { class: "state " + kind, "data-figure": "state" }, SAYS[run.state] || run.state),
    run.error ? make("p", { class: "bad" }, run.error) : null,
    make("progress", { max: 1, value: share, "aria-label": "Progress" }),
    facts([
      ["done", percent(Math.floor(share * 100) / 100), "progress"],
      ["time left", isOver || now.eta_s === undefined ? null : duration(now.eta_s), "eta"],
      ["text", now.bytes_done === undefined ? null : bytes(now.bytes_done) + " of " + bytes(now.bytes_total)],
      ["rate", now.bytes_per_s === undefined ? null : bytes(now.bytes_per_s) + "/s"],
      ["tokens a second", now.tokens_per_s ? short(now.tokens_per_s) : null],
      ["documents", now.documents === undefined ? null : count(now.documents), "documents"],
      ["tokens", now.tokens ? count(now.tokens) : null, "tokens"],
      ["bad documents", now.bad_documents === undefined ? null : count(now.bad_documents), "bad_documents"],
      ["units", now.units_total === undefined ? null : count(now.units_done) + " of " + count(now.units_total)],
      ["took", now.elapsed_s === undefined ? null : duration(now.elapsed_s)],
      ["memory at most", run.peak_memory_bytes ? bytes(run.peak_memory_bytes) : null],
      ["fetched", now.fetch_bytes ? bytes(now.fetched_bytes) + " of " + bytes(now.fetch_bytes) : null],
      ["nodes", now.num_nodes > 1 ? count(now.num_nodes) : null, "nodes"],
      ["workers lost", count(run.retries), "retries"],
      ["units failed", count(run.failed_units)],
    ]),
  ];
}

// Rates between points; null where the run was taken up again.
function rates(points, place) {
  const found = [];
  for (let i = 1; i < points.length; i += 1) {
    const [before, after] = [points[i - 1], points[i]];
    const seconds = after[0] - before[0];
    if (after[1] !== before[1]) found.push([after[0], null]);
    else if (seconds > 0) found.push([after[0], Math.max(0, (after[place] - before[place]) / seconds)]);
  }
  return found;
}

function renderCourse(run, points) {
  const start = points.length ? points[0][0] : 0;
  const showX = (value) => duration(value - start);
  const rate = (number) => bytes(number) + "/s";
  const limit = run.now && run.now.memory_budget_bytes;
  const memory = points.map((point) => [point[0], point[4]]);
  const peak = Math.max(...memory.map((point) => point[1]), 1);
  const charts = [
    ["Text a second", lineChart("Text a second", [{ name: "rate", points: rates(points, 2) }], { showX, showY: rate })],
    ["Tokens a second", lineChart("Tokens a second", [{ name: "tokens", points: rates(points, 3) }], { showX, showY: short })],
    ["Memory" + (limit ? ", of " + bytes(limit) + " allowed" : ""),
      lineChart("Memory", [{ name: "memory", points: memory }], { showX, showY: bytes, limit: limit && limit < 4 * peak ? limit : 0 })],
  ];
  const isShown = (chart) => chart[1] && !(chart[0].startsWith("Tokens") && points.every((point) => !point[3]));
  return charts.filter(isShown).map(([title, svg]) => make("figure", { class: "chart" }, make("figcaption", { class: "faint" }, title), svg));
}

function renderStages(run) {
  const parts = Object.entries(run.stage_s);
  if (!parts.length) return null;
  const total = parts.reduce((sum, part) => sum + part[1], 0) || 1;
  const keys = parts.map(([stage, seconds], index) => {
    const square = draw("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, draw("rect", { width: 10, height: 10, class: "fill" + (index % 6) }));
    return make("span", { class: "key" }, square, `${run.stage_names[stage]} ${percent(seconds / total)} (${duration(seconds)})`);
  });
  const found = run.bottleneck;
  return [
    stackedBar("Time by stage", parts.map(([stage, seconds]) => [run.stage_names[stage], seconds])),
    make("p", {}, ...keys),
    found ? make("p", { "data-figure": "bottleneck" }, make("strong", {}, "Mostly " + found.name + ". "), found.advice) : null,
  ];
}

function renderWorkers(run) {
  if (!run.workers.length || run.state === "finished") return null;
  const rows = run.workers.map((worker) => [
    worker.name, worker.unit === null ? "idle" : count(worker.unit),
    worker.unit === null ? "" : percent(worker.unit_bytes ? worker.bytes_done / worker.unit_bytes : 0),
    worker.unit === null ? "" : duration(Math.max(0, run.time - worker.since)),
    duration(Math.max(0, run.time - worker.seen)) + " ago", worker.memory_bytes ? bytes(worker.memory_bytes) : "",
  ]);
  return table([["worker", ""], ["unit", "number"], ["done", "number"], ["for", "number"], ["heard of", "number"], ["memory", "number"]], rows);
}

function renderLedger(run) {
  const rows = [];
  for (const [what, sides] of Object.entries(run.balance)) {
    if (!sides.in || (what === "tokens" && run.plan && run.plan.job === "count")) continue;
    for (const side of ["in", "out"]) {
      for (const [name, number] of Object.entries(sides[side])) {
        rows.push([what, side, name, make("span", { "data-figure": `ledger ${what} ${name}` }, count(number))]);
      }
    }
  }
  const ledger = run.ledger, isGood = run.balance.is_balanced;
  return [
    make("p", { class: "state " + (isGood ? "good" : "bad"), "data-figure": "balance" }, isGood ? "balances" : "does not balance: " + run.balance.why_not),
    run.is_final ? null : make("p", { class: "faint" }, `of ${count(run.units_read)} units that are done`),
    table([["", ""], ["", ""], ["", ""], ["number", "number"]], rows),
    facts([["rows or documents written", count(ledger.rows), "ledger rows"], ["padding", count(ledger.padding)], ["repeated by overlap", count(ledger.tokens_repeated)],
      ["documents cut", count(ledger.documents_cut)], ["text encoded", bytes(ledger.bytes_encoded)],
      ["bad files", Object.entries(ledger.bad_files).map((pair) => pair.join(" ")).join(", ")]]),
  ];
}

function renderProblems(run) {
  if (!run.problems.length && !run.damaged_lines && !run.damaged_units) return null;
  const rows = run.problems.map((entry) => [when(entry.time), entry.event, entry.unit === null ? "" : count(entry.unit), entry.worker, make("span", {}, entry.why)]);
  return [
    run.damaged_lines ? make("p", { class: "bad" }, count(run.damaged_lines) + " lines of events.jsonl cannot be read") : null,
    run.damaged_units ? make("p", { class: "bad" }, count(run.damaged_units) + " unit records cannot be read") : null,
    table([["time", ""], ["what", ""], ["unit", "number"], ["worker", ""], ["why", "text"]], rows),
  ];
}

function renderBad(run) {
  const isBad = (pair) => !["limit", "not sampled"].includes(pair[0]);
  const dropped = Object.entries(run.ledger.documents_dropped).filter(isBad).concat(Object.entries(run.ledger.bad_files));
  if (!dropped.length) return null;
  const rows = (run.samples || []).map((entry) => [entry.reason, entry.file, entry.place, entry.detail, entry.excerpt]);
  return [
    facts(dropped.map(([reason, number]) => [reason, count(number), "dropped " + reason])),
    rows.length ? table([["reason", ""], ["file", "text"], ["where", ""], ["what", "text"], ["how it begins", "text"]], rows) : null,
  ];
}

function renderSlow(run) {
  if (!run.slow || !run.slow.length) return null;
  const rows = run.slow.map((unit) => [count(unit.unit), duration(unit.seconds), bytes(unit.num_bytes), bytes(unit.num_bytes / (unit.seconds || 1)) + "/s", unit.stage, unit.source]);
  return table([["unit", "number"], ["took", "number"], ["text", "number"], ["rate", "number"], ["mostly", ""], ["begins in", "text"]], rows);
}

function renderSources(run) {
  if (!run.sources || !run.sources.length) return null;
  const perByte = (entry) => (entry.tokens_per_byte ? entry.tokens_per_byte.toFixed(4) : "–");
  const sources = run.sources.map((entry) => [entry.name, bytes(entry.text_bytes), count(entry.tokens), perByte(entry), entry.bytes_per_worker_s ? bytes(entry.bytes_per_worker_s) + "/s" : "–"]);
  const scripts = (run.scripts || []).map((entry) => [entry.name, bytes(entry.text_bytes), count(entry.documents), perByte(entry)]);
  return [
    table([["source", "text"], ["text", "number"], ["tokens", "number"], ["tokens a byte", "number"], ["a worker does", "number"]], sources),
    scripts.length ? make("p", { class: "faint" }, "By script, in a sample of the documents:") : null,
    scripts.length ? table([["script", ""], ["text", "number"], ["documents", "number"], ["tokens a byte", "number"]], scripts) : null,
  ];
}

function renderLengths(run) {
  if (!run.lengths) return null;
  const charts = [["Bytes of a document", "document_bytes"], ["Tokens of a document", "document_tokens"]].map(([title, name]) => {
    const counts = run.lengths[name], first = counts.findIndex((bucket) => bucket[1] > 0);
    if (first < 0) return null;
    const svg = barChart(title, counts.slice(first).map((bucket) => [short(bucket[0]), bucket[1]]), short);
    return make("figure", {}, make("figcaption", { class: "faint" }, title + ": from, in powers of two"), svg);
  });
  return charts.some(Boolean) ? charts : null;
}

function renderModes(run) {
  if (!run.modes || !run.modes.length) return null;
  const rows = run.modes.map((mode) => [mode.name, count(mode.rows), percent(mode.padding_share, 2), (mode.bound ? mode.bound + " " : "") + count(mode.documents_cut), count(mode.tokens_lost)]);
  return [
    table([["mode", ""], ["rows", "number"], ["padding", "number"], ["documents cut", "number"], ["tokens lost", "number"]], rows, (index) => (run.modes[index].is_own ? "own" : null)),
    make("p", { class: "faint" }, `Rows of ${count(run.plan.row_length)} tokens. ` + (run.modes.some((mode) => mode.is_own) ? "Bold is this run, exactly; " : "") + "others follow from the lengths of its documents. «cut off»: a row a document, the rest thrown away."),
  ];
}

function renderTraining(run) {
  const training = run.training;
  if (!training) return null;
  const summary = training.counted || {};
  const curve = (place) => training.curve.filter((point) => point[place] > 0).map((point) => [point[0], point[place]]);
  const counts = lineChart("Count of the pair merged", [{ name: "count", points: curve(1) }], { showX: short, showY: short, logarithmic: true });
  const fit = training.fit, shares = fit ? [...Object.entries(fit.sources), ...Object.entries(fit.scripts)] : [];
  const rows = shares.map(([name, [size, tokens]]) => [name, bytes(size), count(tokens), tokens ? (size / tokens).toFixed(3) : "–"]);
  const squeezed = lineChart("Bytes a token", [{ name: "bytes", points: curve(2) }], { showX: short, showY: (value) => value.toFixed(2), logarithmic: true, plainY: true });
  return [
    facts([["distinct pieces", summary.num_pieces === undefined ? null : count(summary.num_pieces), "pieces"], ["pieces in all", summary.total_count === undefined ? null : count(summary.total_count)],
      ["tokens", training.num_tokens ? count(training.num_tokens) + " of " + count(training.vocab_size) : null, "vocab"],
      ["bytes a token", training.bytes_per_token ? training.bytes_per_token.toFixed(3) : null, "bytes_per_token"]]),
    counts ? make("figure", {}, make("figcaption", { class: "faint" }, "How often the merged pair occurred, by tokens"), counts) : null,
    squeezed ? make("figure", {}, make("figcaption", { class: "faint" }, "Compression: bytes of text a token, by tokens"), squeezed) : null,
    rows.length ? make("p", { class: "faint" }, `Of ${count(fit.num_documents)} documents ${fit.is_held_out ? "that were not counted" : "of the training text"}:`) : null,
    rows.length ? table([["source or script", ""], ["text", "number"], ["tokens", "number"], ["bytes a token", "number"]], rows) : null,
  ];
}

function renderAbout(run) {
  const plan = run.plan, start = run.start || {}, machine = start.machine || {};
  if (!plan) return null;
  return [
    facts([["folder", run.folder], ["tokenizer", plan.tokenizer], ["vocabulary", plan.vocab_size ? count(plan.vocab_size) : null], ["mode", plan.mode], ["row", plan.sequence_length],
      ["formats", (plan.formats || []).join(", ")], ["ids", plan.dtype], ["inputs", `${count(plan.num_files)} files (${plan.kinds.join(", ")}), ${bytes(plan.num_bytes)}`],
      ["largest document", bytes(plan.max_document_bytes)], ["backend", start.backend], ["blocks", start.block_bytes ? bytes(start.block_bytes) : null],
      ["processor", machine.processor], ["cores", machine.cores], ["memory free at the start", machine.available_bytes ? bytes(machine.available_bytes) : null],
      ["system", machine.system], ["Python", machine.python],
      ["versions", Object.entries(machine.versions || {}).map((pair) => pair.join(" ")).join(", ")]]),
    make("p", { class: "faint" }, "To do it again:"), make("pre", { "data-figure": "reproduce" }, run.reproduce),
    embedded ? null : make("p", {}, "Files: ", ...run.files.flatMap((name) => [make("a", { href: `runs/${chosen}/files/${name}`, download: name }, name), " "])),
  ];
}

const COMPARED = [
  ["state", (run) => run.state], ["done", (run) => percent(progressOf(run))], ["text a second", (run) => (run.now ? bytes(run.now.bytes_per_s) + "/s" : "–")],
  ["tokens a second", (run) => (run.now ? short(run.now.tokens_per_s) : "–")], ["documents", (run) => count(run.ledger.documents_encoded)],
  ["tokens", (run) => count(run.ledger.tokens_encoded)], ["tokens a byte", (run) => (run.ledger.bytes_encoded ? (run.ledger.tokens_encoded / run.ledger.bytes_encoded).toFixed(4) : "–")],
  ["mostly", (run) => (run.bottleneck ? `${run.bottleneck.name} ${percent(run.bottleneck.share)}` : "–")], ["workers", (run) => (run.now ? count(run.now.num_workers) : "–")],
  ["memory at most", (run) => bytes(run.peak_memory_bytes)], ["workers lost", (run) => count(run.retries)], ["tokenizer", (run) => (run.plan && run.plan.tokenizer) || "–"],
  ["mode", (run) => (run.plan && run.plan.mode) || "–"], ["formats", (run) => ((run.plan && run.plan.formats) || []).join(", ")],
];

function renderCompared() {
  if (runs.length < 2) return null;
  const columns = [["", ""], ...runs.map((run) => [run.overview.name, "number"])];
  return table(columns, COMPARED.map(([name, figure]) => [name, ...runs.map((run) => figure(run.overview))]));
}

// Of each section: its heading, what it is drawn from, and how.
const SECTIONS = [
  ["compared", "Side by side", true, () => runs.map((run) => run.overview), renderCompared],
  ["progress", "Progress", false, (run) => run.overview, (run) => renderProgress(run.overview)],
  ["stages", "Time by stage", false, (run) => [run.overview.stage_s, run.overview.bottleneck], (run) => renderStages(run.overview)],
  ["course", "Over time", false, (run) => run.points, (run) => renderCourse(run.overview, run.points)],
  ["ledger", "Ledger", false, (run) => [run.overview.ledger, run.overview.is_final, run.overview.units_read], (run) => renderLedger(run.overview)],
  ["workers", "Workers", false, (run) => [run.overview.workers, run.overview.time, run.overview.state], (run) => renderWorkers(run.overview)],
  ["problems", "Workers lost and units failed", true, (run) => run.overview.problems, (run) => renderProblems(run.overview)],
  ["bad", "Bad documents and files", true, (run) => [run.overview.samples, run.overview.ledger], (run) => renderBad(run.overview)],
  ["training", "Training", false, (run) => run.overview.training, (run) => renderTraining(run.overview)],
  ["sources", "Sources", false, (run) => [run.overview.sources, run.overview.scripts], (run) => renderSources(run.overview)],
  ["lengths", "Lengths", false, (run) => run.overview.lengths, (run) => renderLengths(run.overview)],
  ["modes", "Padding and truncation by packing mode", false, (run) => [run.overview.modes, run.overview.plan], (run) => renderModes(run.overview)],
  ["slow", "Slowest units", false, (run) => run.overview.slow, (run) => renderSlow(run.overview)],
  ["about", "The run and the machine", false, (run) => [run.overview.plan, run.overview.start, run.overview.files], (run) => renderAbout(run.overview)],
];
const drawn = {};

function render() {
  const run = runs[chosen];
  if (!run) return;
  document.title = `${percent(Math.floor(progressOf(run.overview) * 100) / 100)} ${run.overview.name} · gristmill`;
  document.getElementById("empty")?.remove();
  let before = null;
  for (const [id, title, isWide, source, show] of SECTIONS) {
    const key = chosen + JSON.stringify(source(run));
    let section = document.getElementById(id);
    if (drawn[id] !== key) {
      drawn[id] = key;
      const content = show(run);
      const parts = content === null ? [] : Array.isArray(content) ? content.filter(Boolean) : [content];
      if (!parts.length) { section?.remove(); section = null; }
      else {
        if (!section) {
          section = make("section", { id, class: isWide ? "wide" : null, "aria-labelledby": id + "-title" });
          if (before) before.after(section); else main.prepend(section);
        }
        section.replaceChildren(make("h2", { id: id + "-title" }, title), ...parts);
      }
    }
    before = section || before;
  }
}

function renderRuns() {
  const buttons = runs.map((run, index) => {
    const button = make("button", { type: "button", "aria-pressed": String(index === chosen) }, run.overview.name);
    button.addEventListener("click", () => {
      chosen = index;
      buttons.forEach((other, place) => other.setAttribute("aria-pressed", String(place === index)));
      render();
    });
    return button;
  });
  document.getElementById("runs").replaceChildren(...(runs.length > 1 ? buttons : []));
}

function take(update) {
  for (const news of update.runs) {
    const run = runs[news.index] || (runs[news.index] = { points: [] });
    const isNew = !run.overview;
    run.overview = news.overview;
    run.overview.time = news.time;
    run.points = news.from === null ? news.points : run.points.slice(0, news.from).concat(news.points);
    if (isNew) renderRuns();
  }
  render();
}

function listen() {
  const connection = document.getElementById("connection");
  const source = new EventSource("api/events");
  source.addEventListener("open", () => connection.replaceChildren("live"));
  source.addEventListener("message", (event) => take(JSON.parse(event.data)));
  source.addEventListener("end", () => {
    source.close();
    connection.replaceChildren("the run has ended, and this page with it; report.html in its folder stays");
  });
  source.addEventListener("error", () => connection.replaceChildren("no connection; what was seen last is shown"));
}

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = root.classList.contains("dark") || (!root.classList.contains("light") && matchMedia("(prefers-color-scheme: dark)").matches);
  root.classList.toggle("dark", !isDark);
  root.classList.toggle("light", isDark);
});

if (embedded) take(JSON.parse(embedded.textContent));
else listen();

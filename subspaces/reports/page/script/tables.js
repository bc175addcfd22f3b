// Tables, and their numbers as CSV.
// A column: { label, text: row => string, content: row => node, number, header, csv: { name: row => value }, best }

const words = (label, text, more = {}) => ({ label, text, ...more });
const figures = (label, text, name, value, more = {}) =>
  ({ label, number: true, text, csv: { [name]: value }, ...more });

function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? "'" + value : String(value); // no formula in a spreadsheet
  return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
}

function csv(columns, rows) {
  const fields = columns.flatMap((column) => Object.entries(column.csv ?? { [column.label]: column.text }));
  const head = fields.map(([name]) => cell(name));
  const lines = rows.map((row) => fields.map(([, value]) => cell(value(row))));
  return [head, ...lines].map((line) => line.join(",") + "\r\n").join("");
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    $("copy-text").value = text; // also the way for browsers that only copy what is selected
    $("copy").showModal();
    $("copy-text").select();
    const done = document.execCommand("copy");
    if (done) $("copy").close();
    return done;
  }
}
$("copy-close").addEventListener("click", () => $("copy").close());

function copyButton(label, text, described = "") {
  const name = described ? `${label}: ${described}` : null;
  const button = el("button", { type: "button", class: "quiet", "aria-label": name }, label);
  button.addEventListener("click", async () => {
    if (!(await copy(text()))) return;
    button.textContent = "Copied";
    announce("Copied to the clipboard", 0);
    setTimeout(() => { button.textContent = label; }, 3000);
  });
  return button;
}

function filled(tag, scope, column, content, best = false) {
  const style = [column.number ? "number" : "", column.style ?? "", best ? "best" : ""].join(" ").trim();
  return el(tag, { class: style || null, scope, title: scope === "col" ? column.title ?? null : null }, content);
}

// Rows may stand in groups under a heading: `group: row => string`.
function plainTable({ caption, columns, rows, hideCaption = false, group = null }) {
  const bests = columns.map((column) => (column.best ? Math.max(...rows.map(column.best)) : null));
  const line = (row) => el("tr", {}, ...columns.map((column, at) => {
    const best = rows.length > 1 && column.best && column.best(row) === bests[at] && bests[at] > -Infinity;
    const content = column.content ? column.content(row) : column.text(row);
    return column.header ? filled("th", "row", column, content) : filled("td", null, column, content, best);
  }));
  const heading = (name) =>
    el("tr", {}, el("th", { colspan: columns.length, scope: "colgroup" }, el("span", {}, name)));
  const body = rows.flatMap((row, index) => {
    const first = group && (index === 0 || group(row) !== group(rows[index - 1]));
    return first ? [heading(group(row)), line(row)] : [line(row)];
  });
  return el("table", {},
    el("caption", { class: hideCaption ? "hidden" : null }, caption),
    el("thead", {}, el("tr", {}, ...columns.map((column) => filled("th", "col", column, column.label)))),
    el("tbody", {}, ...body));
}

// A box to scroll in, with a shadow where there is more, and a line that says so.
function scrolling(label, content, style = "scroll") {
  const box = el("div", { class: style, tabindex: "0", role: "region", "aria-label": label }, content);
  const hint = el("p", { class: "hint", hidden: true }, "Scroll sideways to see all columns →");
  const look = () => {
    const left = box.scrollWidth - box.clientWidth - box.scrollLeft;
    hint.hidden = box.scrollWidth <= box.clientWidth + 1;
    box.classList.toggle("more-left", box.scrollLeft > 1);
    box.classList.toggle("more-right", left > 1);
  };
  box.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(box);
  new ResizeObserver(look).observe(content);
  return el("div", { class: "scroller" }, hint, box);
}

function table(settings) {
  const { caption, columns, rows } = settings;
  return el("div", {},
    scrolling(caption, plainTable(settings)),
    el("div", { class: "under" }, copyButton("Copy as CSV", () => csv(columns, rows), caption)));
}

// The numbers of a chart, made when they are asked for.
function numbers(settings) {
  const body = el("div");
  const details = el("details", {}, el("summary", {}, "The numbers as a table"), body);
  const update = () => { if (details.open) body.replaceChildren(table(settings())); };
  details.addEventListener("toggle", update);
  return { element: details, update };
}

// A column for every metric; `mean` and `std` give a row's numbers in the order of METRICS.
function metricColumns(mean, std = null) {
  return METRICS.map((metric, at) => {
    const value = (row) => mean(row)[at];
    const deviation = std ? (row) => std(row)[at] : () => null;
    const text = (row) => spread(metric, value(row), deviation(row));
    return figures(metric.label + unit(metric), text, metric.name, value, {
      title: metric.meaning,
      csv: { [metric.name]: value, ...(std ? { [metric.name + "_std"]: deviation } : {}) },
    });
  });
}

// The same, with the best of each column marked, or the nearest to its goal: of numbers as they are shown, so that
// equals are equal, and of rows that may be `compared` with each other.
function judgedColumns(mean, std, compared) {
  return metricColumns(mean, std).map((column, at) => {
    const metric = METRICS[at];
    const merit = (number) => (metric.goal !== null ? -Math.abs(number - scaled(metric, metric.goal)) :
      metric.higher ? number : -number);
    const rounded = (row) => merit(Number(shown(metric, mean(row)[at], false)));
    return { ...column, best: (row) => (mean(row)[at] === null || !compared(row) ? -Infinity : rounded(row)) };
  });
}

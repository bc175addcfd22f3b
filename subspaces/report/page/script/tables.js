// Tables, and their numbers as CSV.
// A column: { label, text: row => string, number, header, csv: { name: row => value }, best: row => comparable }

function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? "'" + value : String(value); // no formula in a spreadsheet
  return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
}

function csv(columns, rows) {
  const fields = columns.flatMap((column) => Object.entries(column.csv ?? { [column.label]: column.text }));
  const lines = [fields.map(([name]) => cell(name)), ...rows.map((row) => fields.map(([, value]) => cell(value(row))))];
  return lines.map((line) => line.join(",")).join("\r\n") + "\r\n";
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    $("copy-text").value = text; // also the way for browsers that only copy what is selected
    $("copy").showModal();
    $("copy-text").select();
    let done = false;
    try { done = document.execCommand("copy"); } catch { done = false; }
    if (done) $("copy").close();
    return done;
  }
}
$("copy-close").addEventListener("click", () => $("copy").close());

function copyButton(label, text, described = "") {
  const button = el("button", { type: "button", class: "quiet", "aria-label": described ? `${label}: ${described}` : null }, label);
  button.addEventListener("click", async () => {
    if (!(await copy(text()))) return;
    button.textContent = "Copied";
    announce("Copied to the clipboard", 0);
    setTimeout(() => { button.textContent = label; }, 1600);
  });
  return button;
}

function filled(tag, column, row, best) {
  const style = [column.number ? "number" : "", column.style ?? "", best ? "best" : ""].join(" ").trim();
  const content = column.content ? column.content(row) : column.text(row);
  return el(tag, { class: style || null, scope: tag === "th" ? "row" : null }, content);
}

// Rows may be grouped under a heading: `group: row => string`.
function plainTable({ caption, columns, rows, hideCaption = false, group = null }) {
  const bests = columns.map((column) => (column.best ? Math.max(...rows.map(column.best)) : null));
  const head = columns.map((column) => el("th", { scope: "col", class: [column.number ? "number" : "", column.style ?? ""].join(" ").trim() || null, title: column.title ?? null }, column.label));
  const line = (row) => el("tr", {}, ...columns.map((column, at) =>
    filled(column.header ? "th" : "td", column, row, rows.length > 1 && column.best && column.best(row) === bests[at])));
  const heading = (name) => el("tr", {}, el("th", { colspan: columns.length, scope: "colgroup" }, name));
  const body = rows.flatMap((row, index) =>
    group && (index === 0 || group(row) !== group(rows[index - 1])) ? [heading(group(row)), line(row)] : [line(row)]);
  return el("table", {}, el("caption", { class: hideCaption ? "hidden" : null }, caption),
    el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...body));
}

function table(settings) {
  return el("div", {},
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": settings.caption }, plainTable(settings)),
    el("div", { class: "under" }, copyButton("Copy as CSV", () => csv(settings.columns, settings.rows), settings.caption)));
}

// The numbers of a chart, made when they are asked for.
function numbers(settings) {
  const body = el("div");
  const details = el("details", {}, el("summary", {}, "The numbers as a table"), body);
  const fillIt = () => { if (details.open) body.replaceChildren(table(settings())); };
  details.addEventListener("toggle", fillIt);
  return { element: details, update: fillIt };
}

function metricColumns(mean, std) {
  return METRICS.map((metric, index) => ({
    label: axis(metric).replace(" (%)", " %"),
    title: metric.meaning,
    number: true,
    text: (row) => spread(metric, mean(row)[index], std ? std(row)[index] : null),
    csv: { [metric.name]: (row) => mean(row)[index], ...(std ? { [metric.name + "_std"]: (row) => std(row)[index] } : {}) },
    best: (row) => (mean(row)[index] === null ? -Infinity : Number(shown(metric, mean(row)[index], false)) * (metric.higher ? 1 : -1)),
  }));
}

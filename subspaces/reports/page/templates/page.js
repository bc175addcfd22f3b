// What every part of the page uses: theme, charts with their legends, copying tables.
// Text from the data becomes text nodes and attributes, never markup.

const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);

function fill(element, attributes, children = []) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}
const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const drawing = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const options = (select, names, chosen = 0) => select.replaceChildren(
  ...names.map((name, index) => el("option", { value: index, selected: index === chosen }, name)));

// What changed, for those who do not see it: said when the reader pauses.
let waiting = 0;
function announce(text, delay = 350) {
  clearTimeout(waiting);
  waiting = setTimeout(() => { $("live").textContent = text; }, delay);
}

// Light and dark: as the system has it, until the reader chooses. Colours are given for the light theme.

const systemDark = matchMedia("(prefers-color-scheme: dark)");
const themed = []; // what has to be drawn anew
let chosenTheme = null;
const isDark = () => (chosenTheme === null ? systemDark.matches : chosenTheme === "dark");
const tinted = (value) => (isDark()
  ? JSON.parse(JSON.stringify(value).replace(/#[0-9a-f]{6}/g, (colour) => data.dark[colour] ?? colour)) : value);
const PALETTE = Object.keys(data.dark);
const colour = (index) => tinted(PALETTE[index]);
const muted = () => tinted(data.template.xaxis.linecolor);

function showTheme() {
  if (chosenTheme !== null) document.documentElement.dataset.theme = chosenTheme;
  $("theme").textContent = isDark() ? "Light" : "Dark";
  $("theme").setAttribute("aria-label", isDark() ? "Switch to light colours" : "Switch to dark colours");
  themed.forEach((draw) => draw());
}
$("theme").addEventListener("click", () => {
  chosenTheme = isDark() ? "light" : "dark";
  showTheme();
});
systemDark.addEventListener("change", showTheme);

// Charts: a list of check boxes is the legend, so that it works by keyboard and wraps.

const touch = matchMedia("(pointer: coarse)").matches;
const CONFIG = {
  responsive: true, displaylogo: false, displayModeBar: touch ? true : "hover", showTips: false,
  modeBarButtons: [["toImage", "zoomIn2d", "zoomOut2d", "resetScale2d"]], showSendToCloud: false, // nothing leaves
};
const DASHES = { dash: "6 4", dot: "2 3", dashdot: "7 3 2 3", longdash: "10 4", longdashdot: "10 3 2 3" };

// The drawing itself says nothing to a screen reader; its buttons, its caption and its table do.
function draw(host, traces, layout) {
  const crowded = traces.length > 18 || innerWidth < 600;
  const hovermode = crowded ? "closest" : layout.hovermode ?? data.template.hovermode;
  const ratio = layout.meta?.ratio;
  const height = ratio && Math.round((host.clientWidth - 150) * ratio + 80);
  if (ratio) host.style.height = `${height}px`;
  const whole = { ...layout, template: { layout: data.template }, hovermode, dragmode: touch ? false : "zoom", height };
  Plotly.react(host, tinted(traces), tinted(whole), CONFIG).then(() => {
    host.querySelectorAll(".main-svg").forEach((picture) => picture.setAttribute("aria-hidden", "true"));
  });
}

function swatch({ mode = "markers", line, marker }) {
  const paint = tinted(marker.line?.color ?? marker.color);
  const stroke = { stroke: paint, "stroke-width": 2.5, "stroke-dasharray": DASHES[line?.dash] ?? null };
  return drawing("svg", { width: 30, height: 14, "aria-hidden": "true" },
    ...(mode.includes("lines") ? [drawing("line", { x1: 0, y1: 7, x2: 30, y2: 7, ...stroke })] : []),
    ...(mode.includes("markers") ? [drawing("circle", { cx: 15, cy: 7, r: 3.4, fill: paint })] : []));
}

// A figure that draws `plots()`, each { data, layout }, with a box for every name in its first one.
function chart(figure, plots) {
  const hosts = figure.querySelectorAll(".chart"), legend = figure.querySelector(".legend");
  const hidden = new Set(plots()[0].data.filter((one) => one.visible === "legendonly").map((one) => one.legendgroup));
  const plot = () => plots().forEach(({ data: traces, layout }, at) => {
    const shown = traces.filter((one) => !hidden.has(one.legendgroup)).map((one) => ({ ...one, visible: true }));
    draw(hosts[at], shown, layout);
  });
  function box(one) {
    const input = el("input", { type: "checkbox", checked: !hidden.has(one.legendgroup) });
    input.addEventListener("change", () => {
      if (input.checked) hidden.delete(one.legendgroup); else hidden.add(one.legendgroup);
      plot();
    });
    return el("label", {}, input, swatch(one), one.legendgroup);
  }
  function update() {
    const named = plots()[0].data.filter((one) => one.legendgroup && one.showlegend !== false);
    legend.replaceChildren(legend.firstElementChild, ...(named.length > 1 ? named.map(box) : []));
    plot();
  }
  themed.push(update);
  return update;
}

for (const figure of document.querySelectorAll("[data-chart]")) {
  const { selects, states } = data.charts[figure.dataset.chart];
  const state = () => states[selects.map((id) => $(id).value).join("|")];
  const update = chart(figure, () => state().plots);
  const caption = () => { figure.querySelector("figcaption").textContent = state().caption; };
  selects.forEach((id) => $(id).addEventListener("change", () => { caption(); update(); }));
  caption();
}

// Tables as CSV: mean ± standard deviation become two columns, and the headings of groups one more.

function field(value) {
  const number = value.replace("−", "-").replace(/^\+(?=\d)/, "").replace(/\u00a0.*$/, "");
  if (number !== "" && Number.isFinite(Number(number))) return number;
  const text = value === "–" ? "" : /^[=+\-@\t\r]/.test(value) ? "'" + value : value; // no formula in a spreadsheet
  return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
}

function csv(table) {
  const texts = (row) => [...row.cells].map((cell) => cell.textContent);
  const names = texts(table.tHead.rows[0]), lines = [...table.tBodies[0].rows].map(texts);
  const spread = names.map((_, at) => lines.some((line) => line[at]?.includes(" ± ")));
  const wide = (line, second) => line.flatMap((text, at) => (spread[at] ? second(text) : [text]));
  const rows = [wide(names, (name) => [name, `${name} std`])];
  let group = [];
  for (const line of lines) {
    if (line.length < names.length) group = line;
    else rows.push([...group, ...wide(line, (text) => [...text.split(" ± "), ""].slice(0, 2))]);
  }
  if (group.length) rows[0].unshift("Group");
  return rows.map((row) => row.map(field).join(",") + "\r\n").join("");
}

async function copy(button, text) {
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch { // browsers that only copy what is selected
    const area = el("textarea", { class: "hidden", "aria-label": "Text to copy" });
    area.value = text;
    document.body.append(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
  }
  const label = (button.dataset.label ??= button.textContent);
  button.textContent = done ? "Copied" : "The browser does not allow copying";
  announce(done ? "Copied to the clipboard" : button.textContent, 0);
  setTimeout(() => { button.textContent = label; }, 3000);
}
document.addEventListener("click", ({ target }) => {
  if (target.matches(".copy")) copy(target, csv(target.closest(".scroller").querySelector("table")));
});
$("points").addEventListener("click", () => copy($("points"), data.points));

for (const section of document.querySelectorAll("main > section")) {
  const title = section.querySelector("h2").textContent;
  $("sections").append(el("li", {}, el("a", { href: "#" + section.id }, title)));
}

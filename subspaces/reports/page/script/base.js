// What every part of the page uses. Text from the data becomes text nodes and attributes, never markup.

const data = JSON.parse(document.getElementById("data").textContent);
const METRICS = data.metrics;
const TOLD = data.told.map((at) => METRICS[at]); // the two that stand for all
const $ = (id) => document.getElementById(id);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}
const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const drawing = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

function options(select, names, chosen = 0) {
  const all = names.map((name, index) => el("option", { value: index, selected: index === chosen }, name));
  select.replaceChildren(...all);
}

// Numbers

const place = (name) => METRICS.findIndex((metric) => metric.name === name);
const scaled = (metric, value) => (value === null ? null : metric.percent ? 100 * value : value);
const unit = (metric) => (metric.percent ? "\u00a0%" : "");
const better = ({ goal, higher }) => (goal !== null ? "" : `; ${higher ? "higher" : "lower"} is better`);
const axis = (metric) => metric.label + (metric.percent ? " (%)" : "");

function shown(metric, value, withUnit = true) {
  return value === null ? "–" : scaled(metric, value).toFixed(metric.digits) + (withUnit ? unit(metric) : "");
}

function spread(metric, mean, std) {
  return shown(metric, mean, false) + (std === null || std === undefined ? "" : " ± " + shown(metric, std, false));
}

const trained = data.runs.some((run) => run.seed !== null); // and not only evaluated
const seedOf = (run) => (run.seed === null ? "" : `, seed ${run.seed}`);
const runName = (run) => data.groups[run.group].label + seedOf(run);
const short = (number) => String(Number(number.toFixed(3))).replace("-", "−");

// What changed, for those who do not see it: said when the reader pauses.

let waiting = 0;
function announce(text, delay = 350) {
  clearTimeout(waiting);
  waiting = setTimeout(() => { $("live").textContent = text; }, delay);
}

// Light and dark: as the system has it, until the reader chooses.

const systemDark = matchMedia("(prefers-color-scheme: dark)");
const themed = []; // what has to be drawn anew
let chosenTheme = null;
const isDark = () => (chosenTheme === null ? systemDark.matches : chosenTheme === "dark");

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

// Sections that have nothing to show are left out; the others are listed at the top.

const leaveOut = (id) => $(id).remove();

function listSections() {
  for (const section of document.querySelectorAll("main > section")) {
    const title = section.querySelector("h2").textContent;
    $("sections").append(el("li", {}, el("a", { href: "#" + section.id }, title)));
  }
}

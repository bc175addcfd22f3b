// Walking through one run: where (slider, triangle or list), the numbers there, their reliability, images that change.

const walk = { run: null, index: 0, show: () => {} };
const here = () => walk.run.points[walk.index];
const middle = () => walk.run.points.findIndex((point) => point.role === "midpoint");

// The point, and the ensemble that it takes part in or is compared with.
function shownRows() {
  const ensemble = walk.run.ensembles[here().partner];
  return ensemble ? [here(), ensemble] : [here()];
}

function walkSection() {
  const { runs } = data;
  const first = Math.max(runs.findIndex((run) => run.kind !== "single"), 0);
  options($("walk-run"), runs.map(runName), first);
  walk.run = runs[first];
  walk.index = walk.run.start;
  const confident = runs.every((run) => run.points.every((point) => point.reliability));
  const drawReliability = confident ? reliabilityChart($("walk-reliability"), shownRows) : () => {};
  if (!confident) leaveOut("walk-reliability");
  const update = () => {
    walk.show(walk.index);
    showNumbers();
    drawReliability();
    showStrip();
  };
  const choose = (index) => {
    if (index === walk.index) return;
    walk.index = index;
    update();
    announce(spoken());
  };
  const enter = () => {
    walk.run = runs[Number($("walk-run").value)];
    walk.index = walk.run.start;
    showWhere(choose);
  };
  $("walk-run").addEventListener("change", () => {
    enter();
    update();
    announce(spoken());
  });
  enter();
  themed.push(() => { // the reliability diagram is drawn anew by itself
    walk.show(walk.index);
    showNumbers();
  });
  showStrip();
  const somewhere = runs.some((run) => run.middle);
  if (!somewhere) $("walk-title").textContent = "Reliability";
  $("walk-lead").textContent = !somewhere ? "How sure the networks are, and how often they are right." :
    "Move through the trained subspace, from one measured network to the next." +
    (runs.some((run) => run.strip) ? " Below are images whose predicted class changes on the way." : "");
}

function spoken() {
  const values = ({ metrics }) => TOLD.map((one) => `${one.label} ${shown(one, metrics[METRICS.indexOf(one)])}`);
  return shownRows().map((row) => `${row.name}: ${values(row).join(", ")}`).join("; ");
}

// Where

function showWhere(choose) {
  const { kind } = walk.run;
  if (kind === "single") {
    const others = data.runs.some((run) => run.kind !== kind);
    const said = others ? [el("p", { class: "lead" }, "A single network: there is no way to walk.")] : [];
    $("walk-where").replaceChildren(...said);
    walk.show = () => {};
  } else if (kind === "interval") showSlider(choose);
  else showSimplex(choose);
  walk.show(walk.index);
}

function showSlider(choose) {
  const { points } = walk.run;
  const output = el("output", { id: "walk-name", for: "walk-alpha" });
  const range = { min: 0, max: points.length - 1, step: 1, value: walk.index };
  const slider = el("input", { type: "range", id: "walk-alpha", ...range });
  slider.addEventListener("input", () => choose(Number(slider.value)));
  const ends = [points[0], points.at(-1)].map((point) => el("span", {}, point.name));
  $("walk-where").replaceChildren(el("div", { class: "where slider" },
    el("div", {}, el("label", { for: "walk-alpha", class: "hidden" }, "Point of the subspace, α"), output),
    slider, el("div", { class: "ends", "aria-hidden": "true" }, ...ends)));
  walk.show = (index) => {
    slider.value = index;
    slider.setAttribute("aria-valuetext", here().name);
    output.textContent = here().name + (here().role === "midpoint" ? `, the ${walk.run.middle}` : "");
  };
}

function showSimplex(choose) {
  const { run } = walk;
  const output = el("output", { id: "walk-name", for: "walk-point" });
  const list = el("select", { id: "walk-point" });
  options(list, run.points.map((point) => point.name), walk.index);
  list.addEventListener("change", () => choose(Number(list.value)));
  const chooser = [el("p", {}, output), el("div", { class: "controls" }, el("label", {}, "Point ", list))];
  const corner = run.kind === "triangle" ? triangle(run, () => walk.index, choose) : null;
  $("walk-where").replaceChildren(corner
    ? el("div", { class: "where triangle" }, corner.picture, el("div", {}, ...chooser, ...corner.aside))
    : el("div", { class: "where" }, ...chooser));
  walk.show = (index) => {
    list.value = index;
    output.textContent = here().name;
    corner?.show(index);
  };
}

// The numbers

function spark(index) {
  const values = walk.run.points.map((point) => point.metrics[index]);
  const known = values.filter((value) => value !== null);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const at = (value, i) => [(118 * i) / (values.length - 1) + 1, 24 - (22 * (value - low)) / (high - low || 1)];
  const points = values.map((value, i) => (value === null ? "" : at(value, i).join(","))).join(" ");
  const [cx, cy] = at(values[walk.index] ?? low, walk.index);
  return drawing("svg", { class: "spark", viewBox: "0 0 120 26", "aria-hidden": "true" },
    drawing("polyline", { points, fill: "none", stroke: ink().muted, "stroke-width": 1.5 }),
    drawing("circle", { cx, cy, r: 4, fill: colour(0) }));
}

function showNumbers() {
  const { run } = walk, [point, ...ensembles] = shownRows();
  const at = (metric) => METRICS.indexOf(metric);
  const column = (name, { metrics }) =>
    figures(name, (metric) => shown(metric, metrics[at(metric)]), name, (metric) => metrics[at(metric)]);
  const along = { label: "along α", number: true, style: "wide", csv: {}, content: (metric) => spark(at(metric)) };
  $("walk-numbers").replaceChildren(table({
    caption: `${runName(run)}: ${point.name}, ${data.split} split`,
    hideCaption: true,
    rows: METRICS,
    columns: [
      words("Metric", (metric) => metric.label, { header: true, csv: { metric: (metric) => metric.name } }),
      column(point.name, point),
      ...(run.middle && middle() >= 0 ? [column(run.middle, run.points[middle()])] : []),
      ...ensembles.map((ensemble) => column(ensemble.name, ensemble)),
      ...(run.kind === "interval" ? [along] : []),
    ],
  }));
}

// The images

const className = (label) => label < 0 ? "NaN" : data.classes[label] ?? `class ${label}`;

function showStrip() {
  const { strip } = walk.run, predicted = strip?.predicted[walk.index];
  if (!predicted) return $("walk-strip").replaceChildren(); // of points that were added later none were kept
  const items = strip.labels.map((_, k) => stripItem(strip, k, predicted[k], strip.confidence[walk.index][k]));
  const right = strip.labels.filter((label, k) => predicted[k] === label).length;
  const title = `Images whose predictions change: ${right} of ${items.length} right at ${here().name}`;
  const scrolled = document.querySelector(".strip-scroll")?.scrollLeft ?? 0;
  const named = { tabindex: "0", role: "region", "aria-label": "Images whose predictions change" };
  const region = el("div", { class: "scroll strip-scroll", ...named }, el("ul", { class: "strip" }, ...items));
  $("walk-strip").replaceChildren(el("h3", {}, title), region);
  region.scrollLeft = scrolled;
}

function stripItem(strip, k, answer, confidence) {
  const truth = className(strip.labels[k]), right = answer === strip.labels[k];
  const alt = `${data.split} image ${strip.indices[k]}`;
  return el("li", { class: right ? "right" : "wrong" },
    el("img", { src: strip.images[k], alt, width: 64, height: 64 }),
    el("span", { class: "truth", title: truth }, "is " + truth),
    el("span", { class: "answer", title: className(answer) },
      el("span", { class: "hidden" }, right ? "right: " : "wrong: "), (right ? "✓ " : "✗ ") + className(answer)),
    el("span", {}, (100 * confidence).toFixed(0) + " % sure"));
}

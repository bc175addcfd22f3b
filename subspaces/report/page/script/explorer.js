// Walking through one run: where (slider, triangle or list), the numbers there, their reliability, images that change.

const walk = { run: null, index: 0, show: () => {} };
const here = () => walk.run.points[walk.index];
const together = () => (here().partner === null || here().partner === undefined ? null : walk.run.ensembles[here().partner]);
const middle = () => Math.max(walk.run.points.findIndex((point) => point.role === "midpoint"), 0);

function walkSection() {
  const runs = data.runs;
  const first = Math.max(runs.findIndex((run) => run.kind !== "single"), 0);
  const labels = runs.map((run) => `${data.groups[run.group].label}, seed ${run.seed}`);
  options($("walk-run"), labels, first);
  walk.run = runs[first];
  walk.index = middle();
  const drawReliability = reliabilityChart($("walk-reliability"), () => ({ point: here(), ensemble: together() }));
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
    walk.index = middle();
    showWhere(choose);
    update();
  };
  $("walk-run").addEventListener("change", () => { enter(); announce(spoken()); });
  themed.push(() => { walk.show(walk.index); showNumbers(); });
  showWhere(choose);
  showNumbers();
  showStrip();
  $("walk-lead").textContent = "Move along the trained subspace, from one evaluated network to the next. " +
    (runs.some((run) => run.strip) ? "Underneath are test images whose predicted class changes on the way." : "");
}

function spoken() {
  const { metrics, name } = here();
  const [accuracy, ece] = [place("accuracy"), place("ece")];
  const numbers = (values) => `accuracy ${shown(METRICS[accuracy], values[accuracy])}, ECE ${shown(METRICS[ece], values[ece])}`;
  const pair = together() ? `; ensemble of ${together().name}: ${numbers(together().metrics)}` : "";
  return `${name}: ${numbers(metrics)}${pair}`;
}

// Where

function showWhere(choose) {
  const { run } = walk;
  const output = el("output", { id: "walk-name", for: run.kind === "interval" ? "walk-alpha" : "walk-point" });
  if (run.kind === "single") {
    $("walk-where").replaceChildren(el("p", { class: "lead" }, "A single network: there is nowhere to go."));
    walk.show = () => {};
  } else if (run.kind === "interval") {
    const slider = el("input", { type: "range", id: "walk-alpha", min: 0, max: run.points.length - 1, step: 1, value: walk.index });
    slider.addEventListener("input", () => choose(Number(slider.value)));
    const ends = [run.points[0], run.points.at(-1)].map((point) => el("span", {}, point.name));
    $("walk-where").replaceChildren(el("div", { class: "where slider" },
      el("div", {}, el("label", { for: "walk-alpha", class: "hidden" }, "Point of the subspace, α"), output),
      slider, el("div", { class: "ends", "aria-hidden": "true" }, ...ends)));
    walk.show = (index) => {
      slider.value = index;
      slider.setAttribute("aria-valuetext", here().name);
      output.textContent = here().name + (here().role === "midpoint" ? ", the midpoint" : "");
    };
  } else {
    const list = el("select", { id: "walk-point" });
    options(list, run.points.map((point) => point.name), walk.index);
    list.addEventListener("change", () => choose(Number(list.value)));
    const chooser = el("div", { class: "controls" }, el("label", {}, "Point ", list));
    const corner = run.kind === "triangle" ? triangle(run, () => walk.index, choose) : null;
    $("walk-where").replaceChildren(corner
      ? el("div", { class: "where triangle" }, corner.picture, el("div", {}, el("p", {}, output), chooser, ...corner.aside))
      : el("div", { class: "where" }, el("p", {}, output), chooser));
    walk.show = (index) => {
      list.value = index;
      output.textContent = here().name;
      corner?.show(index);
    };
  }
  walk.show(walk.index);
}

// The numbers

function spark(index) {
  const values = walk.run.points.map((point) => point.metrics[index]);
  const known = values.filter((value) => value !== null);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const at = (value, i) => [(118 * i) / (values.length - 1) + 1, 24 - (22 * (value - low)) / (high - low || 1)];
  const [x, y] = at(values[walk.index] ?? low, walk.index);
  return drawing("svg", { class: "spark", viewBox: "0 0 120 26", "aria-hidden": "true" },
    drawing("polyline", { points: values.map((value, i) => (value === null ? "" : at(value, i).join(","))).join(" "), fill: "none", stroke: ink().muted, "stroke-width": 1.5 }),
    drawing("circle", { cx: x, cy: y, r: 4, fill: colour(0) }));
}

function showNumbers() {
  const { run } = walk, ensemble = together(), start = run.points[middle()].metrics;
  const single = run.kind === "single";
  const column = (label, text, extra = {}) => ({ label, number: true, text, ...extra });
  const at = (metric) => METRICS.indexOf(metric);
  $("walk-numbers").replaceChildren(table({
    caption: `${data.groups[run.group].label}, seed ${run.seed}: ${here().name}, ${data.split} split`,
    hideCaption: true,
    rows: METRICS,
    columns: [
      { label: "Metric", header: true, text: (metric) => metric.label, csv: { metric: (metric) => metric.name } },
      column(here().name, (metric) => shown(metric, here().metrics[at(metric)]), { csv: { [here().name]: (metric) => here().metrics[at(metric)] } }),
      ...(single ? [] : [column("midpoint", (metric) => shown(metric, start[at(metric)]), { csv: { midpoint: (metric) => start[at(metric)] } })]),
      ...(ensemble ? [column("ensemble of " + ensemble.name, (metric) => shown(metric, ensemble.metrics[at(metric)]), { csv: { ["ensemble of " + ensemble.name]: (metric) => ensemble.metrics[at(metric)] } })] : []),
      ...(run.kind === "interval" ? [column("along α", () => "", { content: (metric) => spark(at(metric)), csv: {}, style: "wide" })] : []),
    ],
  }));
}

// The images

const className = (label) => data.classes[label] ?? `class ${label}`;

function showStrip() {
  const { strip } = walk.run;
  if (!strip) return $("walk-strip").replaceChildren();
  const [predicted, confidence] = [strip.predicted[walk.index], strip.confidence[walk.index]];
  if (!predicted) return $("walk-strip").replaceChildren(el("h3", {}, "Images"), el("p", { class: "lead" }, "Their predictions were not kept at this point."));
  const right = strip.labels.filter((label, k) => predicted[k] === label).length;
  const items = strip.labels.map((label, k) => {
    const good = predicted[k] === label, answer = className(predicted[k]);
    const image = el("img", { src: strip.images[k], alt: `${data.split} image ${strip.indices[k]}`, width: 64, height: 64 });
    return el("li", { class: good ? "right" : "wrong" }, image,
      el("span", { class: "truth", title: className(label) }, "is " + className(label)),
      el("span", { class: "answer", title: answer }, el("span", { class: "hidden" }, good ? "right: " : "wrong: "),
        (good ? "✓ " : "✗ ") + answer), el("span", {}, (100 * confidence[k]).toFixed(0) + " % sure"));
  });
  const scrolled = document.querySelector(".strip-scroll")?.scrollLeft ?? 0;
  const region = el("div", { class: "scroll strip-scroll", tabindex: "0", role: "region", "aria-label": "Images whose predictions change" }, el("ul", { class: "strip" }, ...items));
  $("walk-strip").replaceChildren(el("h3", {}, `Images whose predictions change: ${right} of ${items.length} right at ${here().name}`), region);
  region.scrollLeft = scrolled;
}

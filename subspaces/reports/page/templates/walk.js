// Walking through one run: where (slider, triangle or list), the numbers there, their reliability, images that change.

const walk = { run: data.runs[0], index: 0, triangle: null };
const here = () => walk.run.points[walk.index];
const middle = () => walk.run.points.findIndex((point) => point.role === "midpoint");

function shown(metric, value) {
  if (value === null) return "–";
  return ((metric.percent ? 100 : 1) * value).toFixed(metric.digits) + (metric.percent ? "\u00a0%" : "");
}

// The point, and the ensemble that it takes part in or is compared with.
function shownRows() {
  const ensemble = walk.run.ensembles[here().partner];
  return ensemble ? [here(), ensemble] : [here()];
}

function enter(number) {
  walk.run = data.runs[number];
  walk.index = walk.run.start;
  showWhere();
}

function choose(index) {
  if (index === walk.index) return;
  walk.index = index;
  update();
}

function update() {
  mark();
  showNumbers();
  drawReliability();
  showStrip();
  const values = ({ metrics }) => data.headline.map((at) => `${data.metrics[at].label} ${shown(data.metrics[at], metrics[at])}`);
  announce(shownRows().map((row) => `${row.name}: ${values(row).join(", ")}`).join("; "));
}

// Where: the template of the kind of the run, with its points.

function showWhere() {
  const { run } = walk, { kind, points } = run;
  $("walk-where").replaceChildren($(`where-${kind}`).content.cloneNode(true));
  const control = document.querySelector("#walk-alpha, #walk-point");
  if (kind === "interval") {
    control.max = points.length - 1;
    document.querySelectorAll("#walk-where .ends span").forEach((end, at) => { end.textContent = points.at(-at).name; });
  } else if (control) options(control, points.map((point) => point.name), walk.index);
  control?.addEventListener("input", () => choose(Number(control.value)));
  walk.triangle = kind === "triangle" ? triangle(run) : null;
  mark();
}

function mark() {
  const control = document.querySelector("#walk-alpha, #walk-point"), { name, role } = here();
  if (!control) return;
  control.value = walk.index;
  if (control.id === "walk-alpha") control.setAttribute("aria-valuetext", name);
  $("walk-name").textContent = name + (walk.run.kind === "interval" && role === "midpoint" ? `, the ${walk.run.middle}` : "");
  walk.triangle?.(walk.index);
}

// A simplex of three vertices as a triangle to move in, by pointer or arrow keys, from one point to the next.

const CIVIDIS = ["00224e", "123570", "3b496c", "575d6d", "707173", "8a8678", "a59c74", "c3b369", "e1cc55", "fee838"];
const CORNERS = [[30, 268], [330, 268], [180, 22]];
const NAMES = [[14, 292, "start"], [346, 292, "end"], [180, 10, "middle"]];
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

// The point that is nearest in a direction; what lies off that direction counts as farther.
function towards(places, from, [dx, dy]) {
  let [best, least] = [from, Infinity];
  places.forEach(([x, y], index) => {
    const [right, down] = [x - places[from][0], y - places[from][1]];
    const [ahead, aside] = [right * dx + down * dy, Math.abs(right * dy - down * dx)];
    const cost = ahead + 2.2 * aside;
    if (ahead > 1 && aside < 1.9 * ahead && cost < least) [best, least] = [index, cost];
  });
  return best;
}

// Colours the dots by a metric, bright for the best, and says what the colours mean.
function paint(run, dots) {
  const at = Number($("triangle-metric").value), one = data.metrics[at];
  const values = run.points.map((point) => point.metrics[at]);
  const known = values.filter((value) => value !== null).sort((a, b) => (one.higher ? a - b : b - a));
  const [worst, best] = [known[0], known.at(-1)];
  const step = (value) => Math.round(((CIVIDIS.length - 1) * (value - worst)) / (best - worst || 1));
  values.forEach((value, i) => dots[i].setAttribute("fill", value === null ? "none" : "#" + CIVIDIS[step(value)]));
  const [low, bar, high] = document.querySelector(".scale").children;
  bar.style.background = `linear-gradient(to right, #${CIVIDIS.join(",#")})`;
  [low.textContent, high.textContent] = [shown(one, worst), shown(one, best) + ", best"];
}

// Draws the triangle, and returns what marks a point in it.
function triangle(run) {
  const place = (alpha) => [0, 1].map((k) => alpha.reduce((sum, share, i) => sum + share * CORNERS[i][k], 0));
  const places = run.points.map((point) => place(point.alpha));
  const dots = places.map(([x, y]) => drawing("circle", { cx: x, cy: y, r: 8 }));
  const cursor = drawing("circle", { r: 13, fill: "none", "stroke-width": 3 }), picture = $("walk-triangle");
  const names = NAMES.map(([x, y, anchor], i) => drawing("text", { x, y, "text-anchor": anchor }, `${run.vertex} ${i + 1}`));
  picture.append(...dots, cursor, ...names);
  function follow(event) {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(picture.getScreenCTM().inverse());
    const far = places.map(([x, y]) => Math.hypot(x - at.x, y - at.y));
    choose(far.indexOf(Math.min(...far)));
  }
  picture.addEventListener("pointerdown", (event) => {
    picture.setPointerCapture(event.pointerId);
    follow(event);
  });
  picture.addEventListener("pointermove", (event) => picture.hasPointerCapture(event.pointerId) && follow(event));
  picture.addEventListener("keydown", (event) => {
    if (event.key !== "Home" && !ARROWS[event.key]) return;
    event.preventDefault();
    choose(event.key === "Home" ? Math.max(middle(), 0) : towards(places, walk.index, ARROWS[event.key]));
  });
  options($("triangle-metric"), data.metrics.map((one) => one.label));
  $("triangle-metric").addEventListener("input", () => paint(run, dots));
  paint(run, dots);
  return (index) => {
    fill(cursor, { cx: places[index][0], cy: places[index][1], stroke: colour(1) });
    dots.forEach((dot, i) => fill(dot, { stroke: muted(), "stroke-width": i === index ? 2 : 0.8 }));
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
    drawing("polyline", { points, fill: "none", stroke: muted(), "stroke-width": 1.5 }),
    drawing("circle", { cx, cy, r: 4, fill: colour(0) }));
}

function showNumbers() {
  const { run } = walk, [point, ...ensembles] = shownRows(), along = run.kind === "interval";
  const fixed = run.middle && middle() >= 0 ? [{ ...run.points[middle()], name: run.middle }] : [];
  const columns = [point, ...fixed, ...ensembles], caption = `${run.name}: ${point.name}, ${data.split} split`;
  const number = (tag, content, more = "") => el(tag, { class: "number" + more, scope: tag === "th" ? "col" : null }, content);
  const [head, body] = [el("tr", {}, el("th", { scope: "col" }, "Metric")), el("tbody")];
  head.append(...columns.map((one) => number("th", one.name)), ...(along ? [number("th", "along α", " wide")] : []));
  data.metrics.forEach((metric, at) => body.append(el("tr", {}, el("th", { scope: "row" }, metric.label),
    ...columns.map(({ metrics }) => number("td", shown(metric, metrics[at]))),
    ...(along ? [number("td", spark(at), " wide")] : []))));
  const table = document.querySelector("#walk-numbers table");
  table.replaceChildren(el("caption", { class: "hidden" }, caption), el("thead", {}, head), body);
  table.parentElement.setAttribute("aria-label", caption);
  document.querySelector("#walk-numbers .copy").setAttribute("aria-label", `Copy as CSV: ${caption}`);
}

// Reliability: bars for the point, and a line for the ensemble; below, how many examples have which confidence.

function bins({ count, confidence, accuracy }) {
  const total = count.reduce((sum, n) => sum + n, 0);
  const percent = (value) => (value === null ? "–" : (100 * value).toFixed(1) + " %");
  const said = (n, bin) => `${n} ${data.what}<br>confidence ${percent(confidence[bin])}<br>right ${percent(accuracy[bin])}`;
  return {
    x: count.map((_, bin) => (bin + 0.5) / count.length),
    share: count.map((n) => (100 * n) / total),
    hover: { customdata: count.map(said), hovertemplate: "%{customdata}<extra>%{fullData.name}</extra>" },
  };
}

function reliability() {
  const line = { color: data.template.xaxis.linecolor, dash: "dot", width: 1.5 };
  const traces = [{ type: "scatter", mode: "lines", x: [0, 1], y: [0, 100], line, hoverinfo: "skip", showlegend: false }];
  shownRows().forEach(({ name, reliability: found }, at) => {
    const { x, share, hover } = bins(found), paint = PALETTE[at], line = { color: paint, width: 1.5 };
    const named = { legendgroup: name, name, ...hover };
    if (at === 0) {
      const bar = { ...named, type: "bar", x, width: 0.9 / x.length };
      const y = found.accuracy.map((value) => value && 100 * value);
      traces.push({ ...bar, y, marker: { color: `${paint}1f`, line } });
      traces.push({ ...bar, y: share, yaxis: "y2", marker: { color: paint, opacity: 0.75 }, showlegend: false });
    } else {
      const used = [...x.keys()].filter((bin) => found.count[bin] > 0);
      const [sure, right, texts] = [found.confidence, found.accuracy, hover.customdata].map((all) => used.map((bin) => all[bin]));
      const points = { x: sure, y: right.map((value) => 100 * value), customdata: texts, marker: { color: paint, size: 7 } };
      traces.push({ ...named, type: "scatter", mode: "lines+markers", line, ...points });
      const steps = { type: "scatter", mode: "lines", line: { ...line, shape: "hvh" }, yaxis: "y2", showlegend: false };
      traces.push({ ...named, ...steps, x, y: share });
    }
  });
  const { yaxis } = data.template, title = (text) => ({ ...yaxis.title, text });
  return [{ data: traces, layout: {
    xaxis: { title: { text: "Confidence" }, range: [0, 1], anchor: "y2", tickformat: ".0%" },
    yaxis: { title: { text: "Right (%)" }, range: [0, 100], domain: [0.32, 1] },
    yaxis2: { ...yaxis, title: title("Images (%)"), domain: [0, 0.22], rangemode: "tozero", nticks: 4 },
    barmode: "overlay", hovermode: "closest",
  } }];
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

const first = Math.max(data.runs.findIndex((run) => run.kind !== "single"), 0);
options($("walk-run"), data.runs.map((run) => run.name), first);
enter(first);
const drawReliability = $("walk-reliability") ? chart($("walk-reliability"), reliability) : () => {};
$("walk-run").addEventListener("input", () => {
  enter(Number($("walk-run").value));
  update();
});
themed.push(mark, showNumbers); // the reliability diagram is drawn anew by itself
showStrip();
showTheme();

// Walking through one run: where (slider, triangle or list), the numbers there, their reliability, images that change.

const walk = { run: null, index: 0, show: () => {} };
const here = () => walk.run.points[walk.index];
const middle = () => walk.run.points.findIndex((point) => point.role === "midpoint");
const percent = (value) => (value === null ? "–" : (100 * value).toFixed(1) + " %");

function shown(metric, value) {
  if (value === null) return "–";
  return ((metric.percent ? 100 : 1) * value).toFixed(metric.digits) + (metric.percent ? "\u00a0%" : "");
}

// The point, and the ensemble that it takes part in or is compared with.
function shownRows() {
  const ensemble = walk.run.ensembles[here().partner];
  return ensemble ? [here(), ensemble] : [here()];
}

function walkSection() {
  const { runs } = data;
  const first = Math.max(runs.findIndex((run) => run.kind !== "single"), 0);
  options($("walk-run"), runs.map((run) => run.name), first);
  const enter = (run) => {
    walk.run = run;
    walk.index = run.start;
    showWhere(choose);
  };
  const choose = (index) => {
    if (index === walk.index) return;
    walk.index = index;
    update();
    announce(spoken());
  };
  enter(runs[first]);
  const confident = runs.every((run) => run.points.every((point) => point.reliability));
  const drawReliability = confident ? chart($("walk-reliability"), reliability) : () => {};
  if (!confident) $("walk-reliability").remove();
  const update = () => {
    walk.show(walk.index);
    showNumbers();
    drawReliability();
    showStrip();
  };
  $("walk-run").addEventListener("change", () => {
    enter(runs[Number($("walk-run").value)]);
    update();
    announce(spoken());
  });
  themed.push(() => { // the reliability diagram is drawn anew by itself
    walk.show(walk.index);
    showNumbers();
  });
  showStrip();
}

function spoken() {
  const values = ({ metrics }) => data.told.map((at) => `${data.metrics[at].label} ${shown(data.metrics[at], metrics[at])}`);
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
  const corner = run.kind === "triangle" ? triangle(run, choose) : null;
  $("walk-where").replaceChildren(corner
    ? el("div", { class: "where triangle" }, corner.picture, el("div", {}, ...chooser, ...corner.aside))
    : el("div", { class: "where" }, ...chooser));
  walk.show = (index) => {
    list.value = index;
    output.textContent = here().name;
    corner?.show(index);
  };
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
function colouring(run, dots) {
  const metric = el("select", { id: "triangle-metric" });
  const scale = el("div", { class: "scale" });
  options(metric, data.metrics.map((one) => one.label));
  function paint() {
    const at = Number(metric.value), one = data.metrics[at];
    const values = run.points.map((point) => point.metrics[at]);
    const known = values.filter((value) => value !== null).sort((a, b) => (one.higher ? a - b : b - a));
    const [worst, best] = [known[0], known.at(-1)];
    const step = (value) => Math.round(((CIVIDIS.length - 1) * (value - worst)) / (best - worst || 1));
    values.forEach((value, i) => dots[i].setAttribute("fill", value === null ? "none" : "#" + CIVIDIS[step(value)]));
    const bar = el("i", { "aria-hidden": "true" });
    bar.style.background = `linear-gradient(to right, #${CIVIDIS.join(",#")})`;
    scale.replaceChildren(el("span", {}, shown(one, worst)), bar, el("span", {}, shown(one, best) + ", best"));
  }
  metric.addEventListener("change", paint);
  paint();
  return [el("div", { class: "controls" }, el("label", {}, "Colour ", metric)), scale];
}

function triangle(run, choose) {
  const place = (alpha) => [0, 1].map((k) => alpha.reduce((sum, share, i) => sum + share * CORNERS[i][k], 0));
  const places = run.points.map((point) => place(point.alpha));
  const dots = places.map(([x, y]) => drawing("circle", { cx: x, cy: y, r: 8 }));
  const cursor = drawing("circle", { r: 13, fill: "none", "stroke-width": 3 });
  const outline = CORNERS.map((corner) => corner.join(",")).join(" ");
  const picture = drawing("svg", {
    id: "walk-triangle", viewBox: "0 0 360 300", tabindex: "0", role: "application",
    "aria-label": "Triangle of networks", "aria-describedby": "triangle-help",
  },
  drawing("polygon", { points: outline, fill: "none", stroke: "currentColor", "stroke-opacity": 0.35 }),
  ...dots, cursor,
  ...NAMES.map(([x, y, anchor], i) => drawing("text", { x, y, "text-anchor": anchor }, `${run.vertex} ${i + 1}`)));

  function show(index) {
    fill(cursor, { cx: places[index][0], cy: places[index][1], stroke: colour(1) }, []);
    dots.forEach((dot, i) => fill(dot, { stroke: muted(), "stroke-width": i === index ? 2 : 0.8 }, []));
  }
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
  const help = "Each dot is a network that was evaluated. Click, drag, or use the arrow keys; Home goes to the middle.";
  return { picture, aside: [el("p", { class: "lead", id: "triangle-help" }, help), ...colouring(run, dots)], show };
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
  const scroller = $("empty-table").content.firstElementChild.cloneNode(true), table = scroller.querySelector("table");
  const number = (tag, content, more = "") => el(tag, { class: "number" + more, scope: tag === "th" ? "col" : null }, content);
  table.append(el("caption", { class: "hidden" }, caption),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Metric"),
      ...columns.map((one) => number("th", one.name)), ...(along ? [number("th", "along α", " wide")] : []))),
    el("tbody", {}, ...data.metrics.map((metric, at) => el("tr", {}, el("th", { scope: "row" }, metric.label),
      ...columns.map(({ metrics }) => number("td", shown(metric, metrics[at]))),
      ...(along ? [number("td", spark(at), " wide")] : [])))));
  scroller.querySelector(".scroll").setAttribute("aria-label", caption);
  scroller.querySelector(".copy").setAttribute("aria-label", `Copy as CSV: ${caption}`);
  $("walk-numbers").replaceChildren(scroller);
  watch(scroller);
}

// Reliability: bars for the point, and a line for the ensemble; below, how many examples have which confidence.

function bins({ count, confidence, accuracy }) {
  const total = count.reduce((sum, n) => sum + n, 0);
  const said = (n, bin) => `${n} ${data.what}<br>confidence ${percent(confidence[bin])}<br>right ${percent(accuracy[bin])}`;
  return {
    x: count.map((_, bin) => (bin + 0.5) / count.length),
    share: count.map((n) => (100 * n) / total),
    hover: { customdata: count.map(said), hovertemplate: "%{customdata}<extra>%{fullData.name}</extra>" },
  };
}

function reliability() {
  const muted = data.template.xaxis.linecolor;
  const traces = [{
    type: "scatter", mode: "lines", x: [0, 1], y: [0, 100], line: { color: muted, dash: "dot", width: 1.5 },
    hoverinfo: "skip", showlegend: false,
  }];
  shownRows().forEach(({ name, reliability: found }, at) => {
    const { x, share, hover } = bins(found), paint = PALETTE[at];
    const named = { legendgroup: name, name, ...hover };
    if (at === 0) {
      const bar = { ...named, type: "bar", x, width: 0.9 / x.length };
      const y = found.accuracy.map((value) => value && 100 * value);
      traces.push({ ...bar, y, marker: { color: `${paint}1f`, line: { color: paint, width: 1.5 } } });
      traces.push({ ...bar, y: share, yaxis: "y2", marker: { color: paint, opacity: 0.75 }, showlegend: false });
    } else {
      const used = [...x.keys()].filter((bin) => found.count[bin] > 0), line = { color: paint, width: 1.5 };
      const [sure, right, texts] = [found.confidence, found.accuracy, hover.customdata].map((all) => used.map((bin) => all[bin]));
      const points = { x: sure, y: right.map((value) => 100 * value), customdata: texts, marker: { color: paint, size: 7 } };
      traces.push({ ...named, type: "scatter", mode: "lines+markers", line, ...points });
      traces.push({ ...named, type: "scatter", mode: "lines", line: { ...line, shape: "hvh" }, x, y: share, yaxis: "y2", showlegend: false });
    }
  });
  const layout = {
    xaxis: { title: { text: "Confidence" }, range: [0, 1], anchor: "y2", tickformat: ".0%" },
    yaxis: { title: { text: "Right (%)" }, range: [0, 100], domain: [0.32, 1] },
    yaxis2: { ...data.template.yaxis, title: { ...data.template.yaxis.title, text: "Images (%)" }, domain: [0, 0.22], rangemode: "tozero", nticks: 4 },
    barmode: "overlay", hovermode: "closest",
  };
  return [{ data: traces, layout }];
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

walkSection();
showTheme();

// A simplex of three vertices as a triangle to move in, by pointer or arrow keys, from one evaluated point to the next.

const CIVIDIS = [
  "#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838",
];
const CORNERS = [[30, 268], [330, 268], [180, 22]];
const NAMES = [[14, 292, "start"], [346, 292, "end"], [180, 10, "middle"]];
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const TRIANGLE = "Each dot is a network that was evaluated. Click, drag, or use the arrow keys; " +
  "Home goes to the middle.";

function mixed(share) {
  const at = Math.min(Math.max(share, 0), 1) * (CIVIDIS.length - 1);
  const [low, high] = [CIVIDIS[Math.floor(at)], CIVIDIS[Math.ceil(at)]];
  const channels = [1, 3, 5].map((from) => {
    const [a, b] = [low, high].map((hex) => parseInt(hex.slice(from, from + 2), 16));
    return Math.round(a + (at % 1) * (b - a));
  });
  return `rgb(${channels.join(",")})`;
}

const onTriangle = (alpha) => [0, 1].map((k) => alpha.reduce((sum, share, i) => sum + share * CORNERS[i][k], 0));

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
  options(metric, METRICS.map((one) => one.label));
  function paint() {
    const at = Number(metric.value), one = METRICS[at];
    const values = run.points.map((point) => point.metrics[at]);
    const known = values.filter((value) => value !== null).sort((a, b) => (one.higher ? a - b : b - a));
    const [worst, best] = [known[0], known.at(-1)];
    const share = (value) => (value - worst) / (best - worst || 1);
    values.forEach((value, i) => dots[i].setAttribute("fill", value === null ? "none" : mixed(share(value))));
    const bar = el("i", { "aria-hidden": "true" });
    bar.style.background = `linear-gradient(to right, ${CIVIDIS.join(",")})`;
    scale.replaceChildren(el("span", {}, shown(one, worst)), bar, el("span", {}, shown(one, best) + ", best"));
  }
  metric.addEventListener("change", paint);
  paint();
  return [el("div", { class: "controls" }, el("label", {}, "Colour ", metric)), scale];
}

function triangle(run, chosen, choose) {
  const places = run.points.map((point) => onTriangle(point.alpha));
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
    cursor.setAttribute("cx", places[index][0]);
    cursor.setAttribute("cy", places[index][1]);
    cursor.setAttribute("stroke", colour(1));
    dots.forEach((dot, i) => {
      dot.setAttribute("stroke", ink().muted);
      dot.setAttribute("stroke-width", i === index ? 2 : 0.8);
    });
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
  picture.addEventListener("pointermove", (event) => {
    if (picture.hasPointerCapture(event.pointerId)) follow(event);
  });
  picture.addEventListener("keydown", (event) => {
    if (event.key !== "Home" && !ARROWS[event.key]) return;
    event.preventDefault();
    choose(event.key === "Home" ? Math.max(middle(), 0) : towards(places, chosen(), ARROWS[event.key]));
  });
  const help = el("p", { class: "lead", id: "triangle-help" }, TRIANGLE);
  return { picture, aside: [help, ...colouring(run, dots)], show };
}

// A simplex of three vertices as a triangle to move in: by pointer, by arrow keys, from one evaluated point to the next.

const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];
const CORNERS = [[30, 268], [330, 268], [180, 22]];

function mixed(share) {
  const at = Math.min(Math.max(share, 0), 1) * (CIVIDIS.length - 1);
  const [low, high] = [CIVIDIS[Math.floor(at)], CIVIDIS[Math.ceil(at)]];
  const part = (hex, from) => parseInt(hex.slice(from, from + 2), 16);
  const channels = [1, 3, 5].map((from) => Math.round(part(low, from) + (at % 1) * (part(high, from) - part(low, from))));
  return `rgb(${channels.join(",")})`;
}

const onTriangle = (alpha) => [0, 1].map((k) => alpha.reduce((sum, share, i) => sum + share * CORNERS[i][k], 0));

// The point that is nearest in a direction; what lies off that direction counts as farther.
function towards(places, from, [dx, dy]) {
  let best = from, least = Infinity;
  places.forEach(([x, y], index) => {
    const [ahead, aside] = [(x - places[from][0]) * dx + (y - places[from][1]) * dy, Math.abs((x - places[from][0]) * dy - (y - places[from][1]) * dx)];
    const cost = ahead + 2.2 * aside;
    if (index !== from && ahead > 1 && aside < 1.9 * ahead && cost < least) [best, least] = [index, cost];
  });
  return best;
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function triangle(run, chosen, choose) {
  const places = run.points.map((point) => onTriangle(point.alpha));
  const dots = places.map(([x, y]) => drawing("circle", { cx: x, cy: y, r: 8 }));
  const cursor = drawing("circle", { r: 13, fill: "none", "stroke-width": 3 });
  const names = [[14, 292, "start"], [346, 292, "end"], [180, 10, "middle"]];
  const picture = drawing("svg", { viewBox: "0 0 360 300", tabindex: "0", role: "application", id: "walk-triangle",
    "aria-label": "Triangle of networks", "aria-describedby": "triangle-help" },
    drawing("polygon", { points: CORNERS.map((corner) => corner.join(",")).join(" "), fill: "none", stroke: "currentColor", "stroke-opacity": 0.35 }),
    ...dots, cursor, ...names.map(([x, y, anchor], i) => drawing("text", { x, y, "text-anchor": anchor }, `vertex ${i + 1}`)));

  const metric = el("select", { id: "triangle-metric" });
  options(metric, METRICS.map((one) => one.label));
  const scale = el("div", { class: "scale" });
  function paint() {
    const at = Number(metric.value), values = run.points.map((point) => point.metrics[at]);
    const known = values.filter((value) => value !== null);
    const [low, high] = [Math.min(...known), Math.max(...known)];
    const higher = METRICS[at].higher; // bright is better
    values.forEach((value, i) => dots[i].setAttribute("fill", value === null ? "none" : mixed(higher ? (value - low) / (high - low || 1) : (high - value) / (high - low || 1))));
    const bar = el("i", { "aria-hidden": "true" });
    bar.style.background = `linear-gradient(to right, ${CIVIDIS.join(",")})`;
    const ends = higher ? [low, high] : [high, low];
    scale.replaceChildren(el("span", {}, shown(METRICS[at], ends[0])), bar, el("span", {}, shown(METRICS[at], ends[1]) + ", best"));
  }
  function show(index) {
    const [x, y] = places[index];
    cursor.setAttribute("cx", x);
    cursor.setAttribute("cy", y);
    cursor.setAttribute("stroke", colour(1));
    dots.forEach((dot, i) => { dot.setAttribute("stroke", ink().muted); dot.setAttribute("stroke-width", i === index ? 2 : 0.8); });
  }
  function follow(event) {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(picture.getScreenCTM().inverse());
    const far = places.map(([x, y]) => Math.hypot(x - at.x, y - at.y));
    choose(far.indexOf(Math.min(...far)));
  }
  picture.addEventListener("pointerdown", (event) => { picture.setPointerCapture(event.pointerId); follow(event); });
  picture.addEventListener("pointermove", (event) => { if (picture.hasPointerCapture(event.pointerId)) follow(event); });
  picture.addEventListener("keydown", (event) => {
    const index = event.key === "Home" ? run.points.findIndex((point) => point.role === "midpoint") : ARROWS[event.key] ? towards(places, chosen(), ARROWS[event.key]) : -1;
    if (index < 0) return;
    event.preventDefault();
    choose(index);
  });
  metric.addEventListener("change", paint);
  paint();
  const help = el("p", { class: "lead", id: "triangle-help" }, "Each dot is a network that was evaluated. Click, drag, or use the arrow keys; Home goes to the midpoint.");
  return { picture, aside: [help, el("div", { class: "controls" }, el("label", {}, "Colour ", metric)), scale], show };
}

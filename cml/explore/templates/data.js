"use strict";
// What the page holds: items, arrays, pictures, colours. Texts of strangers are only ever set as textContent.

const $ = (id) => document.getElementById(id);
const meta = JSON.parse($("meta").textContent);
const N = meta.names.length, K = Math.min(10, N - 1);
const dark = matchMedia("(prefers-color-scheme: dark)"), still = matchMedia("(prefers-reduced-motion: reduce)");
const arrays = {};

function make(tag, settings = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(settings)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (name === "style") Object.assign(node.style, value);
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function bytes(id) {
  const text = atob($(id).textContent), made = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) made[i] = text.charCodeAt(i);
  return made;
}

async function unpack() {
  const kinds = { uint8: Uint8Array, int8: Int8Array, uint16: Uint16Array, int16: Int16Array, uint32: Uint32Array, float32: Float32Array };
  const stream = new Blob([bytes("data")]).stream().pipeThrough(new DecompressionStream("deflate"));
  const block = await new Response(stream).arrayBuffer();
  for (const [name, [kind, offset, count, scale]] of Object.entries(meta.arrays)) {
    arrays[name] = new kinds[kind](block, offset, count);
    arrays[name].scale = scale;
  }
}

const far = (array, at) => (array[at] === 65535 ? Infinity : array[at] * array.scale); // a distance
function show(value) {
  if (value === Infinity) return "–";
  if (!Number.isFinite(value)) return "";
  const size = Math.abs(value);
  const text = size && (size >= 1e6 || size < 1e-3) ? value.toExponential(1) : value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
  return text.replace("-", "\u2212");
}
const count = (value, noun) => `${value.toLocaleString("en")} ${noun}${value === 1 ? "" : "s"}`;
const rankText = (rank, told) => `#${told && rank > 50 ? "≈" : ""}${rank.toLocaleString("en")}`;

// Pictures: tiles of sheets, which lie in the page or beside it.
const sheets = [], bitmaps = new Map();
const { width: W, height: H, across, down } = meta.sheet;
function sheet(number) {
  if (!sheets[number])
    sheets[number] = meta.sheet.folder
      ? `${encodeURIComponent(meta.sheet.folder)}/${number}.webp`
      : URL.createObjectURL(new Blob([bytes(`sheet${number}`)], { type: "image/webp" }));
  return sheets[number];
}
function tile(item) {
  const place = arrays.tile[item], at = place % (across * down);
  return [Math.floor(place / (across * down)), (at % across) * W, Math.floor(at / across) * H, arrays.size[2 * item], arrays.size[2 * item + 1]];
}
function picture(item, side, label = meta.names[item]) {
  const [number, x, y, w, h] = tile(item), scale = side / Math.max(w, h);
  return make("span", {
    class: "picture", role: "img", "aria-label": label,
    style: {
      width: `${w * scale}px`, height: `${h * scale}px`, backgroundImage: `url("${sheet(number)}")`,
      backgroundSize: `${across * W * scale}px auto`, backgroundPosition: `${-x * scale}px ${-y * scale}px`,
    },
  });
}
function bitmap(item, ready) { // for a canvas: null until it has been decoded
  const known = bitmaps.get(item);
  if (known !== undefined) return known;
  if (bitmaps.size > 800) bitmaps.delete(bitmaps.keys().next().value);
  bitmaps.set(item, null);
  const [number, x, y, w, h] = tile(item), image = new Image(), most = 128 / Math.max(w, h);
  image.src = sheet(number);
  const size = most < 1 ? { resizeWidth: Math.round(w * most), resizeHeight: Math.round(h * most), resizeQuality: "high" } : {};
  image.decode().then(() => createImageBitmap(image, x, y, w, h, size)).then((made) => { bitmaps.set(item, made); ready(); }).catch(() => {});
  return null;
}

// Colours: OKLCH, in which equal steps look equal, and viridis.
function oklch(light, chroma, hue) {
  return oklab(light, chroma * Math.cos(hue), chroma * Math.sin(hue));
}
function oklab(L, a, b) {
  const l = (L + 0.3963377774 * a + 0.2158037573 * b) ** 3, m = (L - 0.1055613458 * a - 0.0638541728 * b) ** 3, s = (L - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s, -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s, -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s].map(
    (c) => 255 * Math.min(1, Math.max(0, c <= 0.0031308 ? 12.92 * c : 1.055 * c ** (1 / 2.4) - 0.055)),
  );
}
const VIRIDIS = ["440154", "482878", "3e4a89", "31688e", "26828e", "1f9e89", "35b779", "6ece58", "b5de2b", "fde725"].map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));
function viridis(part) {
  const at = Math.min(0.9999, Math.max(0, part)) * (VIRIDIS.length - 1), low = Math.floor(at);
  return VIRIDIS[low].map((c, i) => c + (at - low) * (VIRIDIS[low + 1][i] - c));
}
const wheel = (part) => oklch(0.72, 0.13, 2 * Math.PI * part);
const warm = (part) => { // from the paper's grey to a strong orange: what is small stays quiet
  const t = Math.min(1, Math.max(0, part));
  return dark.matches ? oklch(0.38 + 0.42 * t, 0.015 + 0.15 * t, 1.05 - 0.2 * t) : oklch(0.86 - 0.26 * t, 0.015 + 0.185 * t, 1.2 - 0.5 * t);
};
const pill = (part) => ({ background: css(oklch(0.9 - 0.16 * part, 0.03 + 0.12 * part, 1.3 - 0.45 * part)), color: "#1d1c1a" });
const KINDS = ["0072b2", "d55e00", "009e73", "cc79a7", "e69f00", "56b4e9", "8b6fd6", "a3a500"].map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));
const kind = (at) => KINDS[at] ?? oklch(0.55 + 0.25 * ((at * 0.382) % 1), 0.12, at * 2.39996);
const around = (part, out) => oklch(0.72 - 0.06 * out, 0.02 + 0.15 * out, part); // a colour for an angle and how far out
const css = ([r, g, b]) => `rgb(${Math.round(r)},${Math.round(g)},${Math.round(b)})`;
const ramp = (colour, steps = 12) => `linear-gradient(90deg,${Array.from({ length: steps + 1 }, (_, i) => css(colour(i / steps))).join(",")})`;
const quantile = (values, part) => { // of the finite ones
  const sorted = Float32Array.from(values).filter(Number.isFinite).sort();
  return sorted.length ? sorted[Math.floor(part * (sorted.length - 1))] : 0;
};

function distancesFrom(points, item) { // over the quantised points of a space
  const D = points.length / N, found = new Float32Array(N);
  for (let i = 0; i < N; i++) {
    let sum = 0;
    for (let d = 0; d < D; d++) sum += (points[i * D + d] - points[item * D + d]) ** 2;
    found[i] = Math.sqrt(sum);
  }
  return found;
}

// What the items can be coloured by: name to what gives {colour(i), legend: [left, background, right] or kinds, text}.
function colourings(state) {
  const made = new Map(), map = arrays.map;
  const scale = (value, low, high, colour, ends, text = "") => ({
    colour: (i) => (Number.isFinite(value(i)) ? colour((value(i) - low) / (high - low || 1)) : [128, 128, 128]), legend: [ends?.[0] ?? show(low), ramp(colour), ends?.[1] ?? show(high)], text,
  });
  const offer = (column, number) => {
    const values = arrays[`column${number}`], value = (i) => values[i];
    made.set(column.name, () => {
      if (column.kinds) return { colour: (i) => kind(values[i]), kinds: column.kinds, text: "" };
      if (column.period) return scale((i) => values[i] - column.period * Math.floor(values[i] / column.period), 0, column.period, wheel);
      return scale(value, quantile(values, 0.01), quantile(values, 0.99), viridis);
    });
  };
  meta.columns.slice(0, meta.labels).forEach(offer);
  if (meta.known) made.set("place on the labels' map", () => {
    const middle = [0, 1].map((axis) => quantile(Array.from({ length: N }, (_, i) => map[2 * i + axis]), 0.5));
    const away = (i) => [map[2 * i] - middle[0], map[2 * i + 1] - middle[1]], order = [...state.order].sort((i, j) => Math.hypot(...away(i)) - Math.hypot(...away(j)));
    const out = new Float32Array(N); // by rank, so that a crowd in the middle does not all look grey
    order.forEach((item, rank) => (out[item] = rank / N));
    return { colour: (i) => around(Math.atan2(away(i)[1], away(i)[0]), out[i]), legend: ["", ramp((part) => around(2 * Math.PI * part, 0.9)), "near in colour, near by label"], text: "" };
  });
  if (meta.roles.length > 1) made.set("role", () => ({ colour: (i) => kind(arrays.role[i]), kinds: meta.roles, text: "" }));
  meta.columns.slice(meta.labels).forEach((column, number) => made.has(column.name) || offer(column, meta.labels + number));
  if (meta.known) made.set("error of its neighbours", () => {
    const errors = arrays[`${state.view}.error`], value = (i) => far(errors, i);
    return scale(value, 0, quantile(Array.from(errors, (_, i) => far(errors, i)), 0.98), warm, null, `how much farther by label (${meta.unit}) the ${K} neighbours lie than the nearest possible`);
  });
  for (const [name, points] of [["label distance to the selected", "points"], ["embedding distance to the selected", "view"]].slice(meta.known ? 0 : 1))
    made.set(name, () => {
      const found = distancesFrom(arrays[points === "view" ? `${state.view}.points` : points], Math.max(0, state.item));
      return scale((i) => found[i], 0, quantile(found, 0.98), (part) => warm(1 - part), ["near", "far"], "approximate");
    });
  return made;
}

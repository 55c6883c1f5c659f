// The page: tabs, tools, the selected item, pair or set of items, search, the diagram of pairs.

const state = {
  view: 0, map: null, item: -1, pair: null, chosen: null, hover: -1, hits: null, lasso: false, pictures: false,
  hidden: new Set(), order: Uint32Array.from({ length: N }, (_, i) => i), colour: null,
  shown: (i) => !state.hidden.has(arrays.role[i]),
  hue: (name) => (name === "label" ? (dark.matches ? "#ff9d4d" : "#d55e00") : dark.matches ? "#7db2f5" : "#2e6fc4"),
};
const own = (name) => arrays[`${state.view}.${name}`];
const view = () => meta.views[state.view];
let planes = [], options, waiting = false;

const actions = {
  redraw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { (waiting = false), planes.forEach((plane) => plane.draw()); });
  },
  repaint() {
    planes.forEach((plane) => (plane.stale = true)), actions.redraw();
  },
  hover(item, event) {
    const tip = $("tip");
    if (item !== state.hover) {
      state.hover = item, actions.repaint();
      tip.hidden = item < 0;
      if (item >= 0) tip.replaceChildren(picture(item, 112), make("bdi", {}, meta.names[item]), make("small", {}, meta.words[item].slice(0, 90)));
    }
    if (item >= 0 && event) {
      tip.style.left = `${Math.min(event.clientX + 14, innerWidth - 140)}px`;
      tip.style.top = `${event.clientY + 14 + 180 > innerHeight ? event.clientY - 14 - tip.offsetHeight : event.clientY + 14}px`;
    }
  },
  select(item) {
    Object.assign(state, { item, pair: null, chosen: item < 0 ? null : state.chosen, hits: item < 0 ? null : state.hits });
    if (item >= 0) state.chosen = null, say(`${meta.names[item]}. ${meta.words[item]}`);
    refresh();
  },
  next(ids) {
    if (state.item < 0) return actions.select(0);
    actions.select(ids[state.item * K]);
  },
  lassoed(items) {
    if (!items.length) return;
    Object.assign(state, { chosen: items, item: -1, pair: null });
    say(`${count(items.length, "item")} selected`), refresh();
  },
  pair(one, other, facts) {
    Object.assign(state, { pair: [one, other], facts, item: -1, chosen: null });
    say(`${meta.names[one]} and ${meta.names[other]}`), refresh();
  },
};
const say = (text) => ($("say").textContent = text);

function recolour() {
  const { colour } = (state.legend = options.get(state.colour)()), colours = new Uint8Array(4 * N);
  const lit = state.chosen ? new Set(state.chosen) : state.hits;
  for (let i = 0; i < N; i++) {
    const [r, g, b] = colour(i);
    colours.set([r, g, b, !state.shown(i) ? 0 : lit && !lit.has(i) ? 28 : state.item >= 0 || state.pair ? 190 : 235], 4 * i);
  }
  planes.forEach((plane) => plane.upload("c", colours)), actions.redraw();
}

function refresh() {
  recolour(), legend(), panel(), diagram(), tell();
}

function tell() { // a notebook that shows the page in a frame what is selected
  if (parent === window) return;
  const items = state.chosen ?? state.pair ?? (state.item >= 0 ? [state.item] : []);
  parent.postMessage({ cml: "selection", items: [...items], names: items.map((item) => meta.names[item]) }, "*");
}

function legend() {
  const { legend: ends, kinds, text } = state.legend, place = $("legend");
  if (kinds) {
    place.replaceChildren(...kinds.slice(0, 12).map((name, at) => make("span", { class: "kind" }, make("i", { style: { background: css(kind(at)) } }), make("bdi", {}, name))), kinds.length > 12 ? ` and ${kinds.length - 12} more` : "");
  } else place.replaceChildren(make("bdi", {}, ends[0]), make("i", { class: "ramp", style: { background: ends[1] } }), make("bdi", {}, ends[2]), text ? make("small", {}, text) : "");
}

// ---- the panel
function facts(item) {
  const columns = meta.columns.map((column, number) => {
    const value = arrays[`column${number}`][item];
    return [column.name, column.kinds ? column.kinds[value] : show(value)];
  });
  const error = far(own("error"), item), gap = ["gap to the oracle", error === Infinity ? "not comparable" : `${show(error)} ${meta.unit}`];
  return [...columns, ...meta.texts.map(([name, texts]) => [name, texts[item]]), ...(meta.roles.length > 1 ? [["role", meta.roles[arrays.role[item]]]] : []), ...(meta.known ? [gap] : [])];
}

function neighbours(item, byLabel) {
  const at = item * K, ids = byLabel ? arrays.ids : own("ids");
  const cards = [];
  for (let place = at; place < at + K; place++) {
    const [embedded, labelled] = byLabel ? [far(own("label_near"), place), far(arrays.near, place)] : [far(own("near"), place), far(own("near_labels"), place)];
    if (byLabel && labelled === Infinity) continue;
    const rank = (byLabel ? own("label_ranks") : own("near_ranks"))[place], name = meta.names[ids[place]];
    const told = !byLabel && !meta.exact, other = byLabel ? "embedding" : "label";
    const byBoth = meta.known ? [unseen("label distance"), make("span", { class: "l" }, show(labelled)), unseen(`rank by ${other}`), make("span", { class: "rank", style: rank > K ? pill(Math.log(rank / K) / Math.log(N / K)) : {} }, rankText(rank, told))] : [];
    cards.push(make("button", {
      type: "button", class: "near", click: () => actions.select(ids[place]), mouseenter: () => actions.hover(ids[place]), mouseleave: () => actions.hover(-1),
      title: `${name}\nembedding distance ${show(embedded)}${meta.known ? `, label distance ${show(labelled)} ${meta.unit}\nrank by ${other} ${rankText(rank, told)}` : ""}`,
    }, picture(ids[place], 60), unseen("embedding distance"), make("span", { class: "e" }, show(embedded)), ...byBoth));
  }
  return make("div", { class: "five" }, ...cards);
}

function tied(item) { // whether two of the nearest by label are equally far
  const near = Array.from({ length: K }, (_, place) => far(arrays.near, item * K + place)).filter(Number.isFinite);
  return new Set(near).size < near.length;
}

const unseen = (text) => make("span", { class: "unseen" }, text); // for screen readers
const table = (rows) => make("dl", {}, ...rows.flatMap(([name, value]) => [make("dt", {}, make("bdi", {}, name)), make("dd", {}, make("bdi", {}, value))]));

function panel() {
  const place = $("panel"), { item, pair, chosen } = state;
  const head = (text, ...more) => make("h2", {}, text, ...more);
  if (chosen) {
    const download = make("button", { type: "button", click: () => save(chosen) }, "Export as CSV");
    const clear = make("button", { type: "button", click: () => actions.select(-1) }, "Let go");
    place.replaceChildren(head(`${count(chosen.length, "item")} selected`), make("p", {}, download, " ", clear),
      make("div", { class: "many" }, ...chosen.slice(0, 150).map((one) => make("button", { type: "button", class: "near", title: meta.names[one], "aria-label": meta.names[one], click: () => actions.select(one) }, picture(one, 56)))),
      chosen.length > 150 ? make("p", { class: "about" }, `and ${count(chosen.length - 150, "more item")}`) : "");
  } else if (pair) {
    place.replaceChildren(head("A pair"), make("div", { class: "two" }, ...pair.map((one) => make("button", { type: "button", class: "near", click: () => actions.select(one) }, picture(one, 176), make("bdi", {}, meta.names[one]), make("small", {}, meta.words[one])))), table(state.facts), ...plotSequences(pair));
  } else if (item >= 0) {
    place.replaceChildren(
      make("div", { class: "one" }, picture(item, 176), make("div", {}, head(make("bdi", {}, meta.names[item])), make("p", { class: "words" }, make("bdi", {}, meta.words[item])), table(facts(item)))), ...plotSequences([item]),
      make("h3", { class: "e" }, "Nearest by embedding", make("small", {}, meta.known ? "# rank by label" : "with embedding distance")), neighbours(item, false),
      ...(meta.known ? [make("h3", { class: "l" }, "Nearest by label", make("small", {}, tied(item) ? "# rank by embedding · the order of tied items is arbitrary" : "# rank by embedding")), neighbours(item, true)] : []),
      make("p", { class: "keys" }, ...meta.legend.map(([word, colour]) => make("span", {}, make("i", { style: { background: colour } }), make("bdi", {}, word)))),
      make("p", { class: "about" }, make("span", { class: "e" }, "embedding distance"), ...(meta.known ? [" · ", make("span", { class: "l" }, `label distance${meta.unit ? ` (${meta.unit})` : ""}`)] : []), ` · among all ${N.toLocaleString("en")} items`, meta.known ? ` · gap to the oracle: mean label distance of the ${K} nearest by embedding minus that of the ${K} nearest by label` : "", meta.note && ` · ${meta.note}`));
  } else {
    place.replaceChildren(head(count(N, "item")), make("p", {}, "Click an item on a map, search for one, or draw around many. With a map in focus the arrow keys walk."), meta.note ? make("p", { class: "about" }, meta.note) : "");
    if (meta.known) place.append(make("h3", {}, "Rank correlation of embedding and label distances over pairs"), make("p", { class: "about" }, `All pairs of the diagram count together${meta.held_out ? "; they are of held-out items" : "; training items are among them"}. spearman_rho of cml evaluate is another figure: the mean over queries.`), table(meta.views.map((one) => [one.title, one.agreement === null ? "–" : show(one.agreement)])));
  }
}

function save(items) {
  const cell = (text) => `"${(/^[\s]*[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`; // no formula in a spreadsheet
  const number = (value) => (Number.isFinite(value) ? String(value) : "");
  const rows = [["name", "label", "role", ...meta.columns.map((one) => one.name), ...meta.texts.map(([name]) => name), "error"].map(cell)];
  for (const item of items)
    rows.push([cell(meta.names[item]), cell(meta.words[item]), cell(meta.roles[arrays.role[item]]), ...meta.columns.map((one, at) => (one.kinds ? cell(one.kinds[arrays[`column${at}`][item]]) : number(arrays[`column${at}`][item]))), ...meta.texts.map(([, texts]) => cell(texts[item])), number(far(own("error"), item))]);
  const address = URL.createObjectURL(new Blob(["\ufeff", rows.map((row) => row.join(",")).join("\r\n"), "\r\n"], { type: "text/csv" }));
  make("a", { href: address, download: "selection.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

// ---- search
function search() {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean), list = $("found");
  const found = [];
  if (words.length) for (let i = 0; i < N; i++) if (state.shown(i) && words.every((word) => search.texts[i].includes(word))) found.push(i);
  state.hits = words.length ? new Set(found) : null;
  list.replaceChildren(...found.slice(0, 8).map((item, at) => make("li", { role: "option", id: `found${at}`, "aria-selected": "false", pointerdown: (event) => { event.preventDefault(), pick(item); } }, picture(item, 36), make("span", {}, make("bdi", {}, meta.names[item]), make("small", {}, meta.words[item])))), ...(words.length ? [make("li", { class: "about", role: "presentation" }, found.length ? count(found.length, "item") : "nothing found")] : []));
  list.hidden = !words.length, $("search").setAttribute("aria-expanded", String(!list.hidden));
  search.found = found, search.at = -1, recolour();
}
function pick(item) {
  $("found").hidden = true, $("search").setAttribute("aria-expanded", "false"), $("search").removeAttribute("aria-activedescendant");
  actions.select(item);
}
function searchKey(event) {
  if (event.key === "Escape") ($("search").value = ""), search();
  else if (event.key === "Enter" && search.found?.length) pick(search.found[Math.max(0, search.at)]);
  else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    const most = Math.min(8, search.found?.length ?? 0);
    if (!most) return;
    search.at = (search.at + (event.key === "ArrowDown" ? 1 : most - (search.at < 0 ? 0 : 1))) % most;
    [...$("found").querySelectorAll("[role=option]")].forEach((option, at) => option.setAttribute("aria-selected", String(at === search.at)));
    $("search").setAttribute("aria-activedescendant", `found${search.at}`);
  } else return;
  event.preventDefault();
}

// ---- Shepard's diagram, and the pairs that disagree
function diagram() {
  if (!meta.known) return;
  const canvas = $("shepard").querySelector("canvas"), box = canvas.parentElement.getBoundingClientRect(), ratio = devicePixelRatio || 1;
  if (!box.width) return;
  canvas.width = box.width * ratio, canvas.height = box.height * ratio;
  const pen = canvas.getContext("2d"), count = arrays.pairs.length / 2, across = arrays.between, up = own("between");
  const edge = { left: 44, right: box.width - 8, top: 8, bottom: box.height - 30 };
  const [wide, tall] = [across, up].map((array) => { let most = 1; for (const value of array) if (value < 65535 && value > most) most = value; return most * array.scale; });
  const toX = (value) => edge.left + (value / wide) * (edge.right - edge.left), toY = (value) => edge.bottom - (value / tall) * (edge.bottom - edge.top);
  const spot = (i) => [toX(far(across, i)), toY(far(up, i))];
  const ticks = (most) => { // four to eight round numbers
    const rough = most / 6, size = 10 ** Math.floor(Math.log10(rough)), step = size * (rough > 5 * size ? 10 : rough > 2 * size ? 5 : rough > size ? 2 : 1);
    return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => Number((i * step).toPrecision(6)));
  };
  const quiet = getComputedStyle(document.body).getPropertyValue("--quiet");
  pen.scale(ratio, ratio), (pen.font = "11px system-ui, sans-serif"), (pen.fillStyle = quiet), (pen.strokeStyle = getComputedStyle(document.body).getPropertyValue("--line"));
  const rule = (...ends) => { pen.beginPath(), pen.moveTo(ends[0], ends[1]), pen.lineTo(ends[2], ends[3]), pen.stroke(); };
  pen.textAlign = "right";
  for (const y of ticks(tall)) rule(edge.left, toY(y), edge.right, toY(y)), pen.fillText(y, edge.left - 5, toY(y) + 4);
  pen.textAlign = "center";
  for (const x of ticks(wide)) rule(toX(x), edge.top, toX(x), edge.bottom), pen.fillText(x, toX(x), edge.bottom + 14);
  pen.fillText(`label distance${meta.unit ? ` (${meta.unit})` : ""}`, (edge.left + edge.right) / 2, edge.bottom + 27);
  pen.fillStyle = state.hue("embedding"), (pen.globalAlpha = count > 1000 ? 0.35 : 0.6);
  for (let i = 0; i < count; i++) pen.beginPath(), pen.arc(...spot(i), 2.2, 0, 7), pen.fill();
  pen.globalAlpha = 1;
  if (state.pair && diagram.at >= 0) (pen.strokeStyle = getComputedStyle(document.body).color), (pen.lineWidth = 2), pen.beginPath(), pen.arc(...spot(diagram.at), 6, 0, 7), pen.stroke();
  diagram.spot = spot;
}
function showPair(at) {
  diagram.at = at;
  actions.pair(arrays.pairs[2 * at], arrays.pairs[2 * at + 1], [["embedding distance", show(far(own("between"), at))], ["label distance", `${show(far(arrays.between, at))} ${meta.unit}`]]);
}
function pairAt(event) {
  const box = event.target.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  let found = -1, least = 400;
  for (let i = 0; i < arrays.pairs.length / 2; i++) {
    const [px, py] = diagram.spot(i), d = (px - x) ** 2 + (py - y) ** 2;
    if (d < least) (least = d), (found = i);
  }
  if (found >= 0) showPair(found);
}

function worst() {
  if (!meta.known) return;
  const byLabel = document.querySelector("[name=kind]:checked").value === "1", pairs = own(byLabel ? "worst1" : "worst0"), ids = byLabel ? arrays.ids : own("ids");
  const rows = [];
  for (let n = 0; n < pairs.length; n += 2) {
    const [one, other] = [pairs[n], pairs[n + 1]];
    const at = ids.subarray(one * K, one * K + K).indexOf(other) + one * K;
    const rank = (byLabel ? own("label_ranks") : own("near_ranks"))[at], labelled = byLabel ? far(arrays.near, at) : far(own("near_labels"), at), embedded = byLabel ? far(own("label_near"), at) : far(own("near"), at);
    const here = `${at - one * K + 1}`, told = !byLabel && !meta.exact;
    const said = [["embedding distance", show(embedded)], ["label distance", `${show(labelled)} ${meta.unit}`], ["rank by embedding", byLabel ? rankText(rank) : `#${here}`], ["rank by label", byLabel ? `#${here}` : rankText(rank, told)]];
    rows.push(make("li", {}, make("button", { type: "button", class: "near wide", click: () => { (diagram.at = -1), actions.pair(one, other, said); } }, picture(one, 60), picture(other, 60),
      make("span", { class: "said" }, make("span", { class: "e" }, `${show(embedded)} `, make("b", {}, said[2][1])), make("span", { class: "l" }, `${show(labelled)} `, make("b", {}, said[3][1]))))));
  }
  document.querySelector("#worst ol").replaceChildren(...rows);
}

// ---- tabs and tools
function choose(number) {
  state.view = number;
  [...$("views").children].forEach((tab, at) => { tab.setAttribute("aria-selected", String(at === number)), (tab.tabIndex = at === number ? 0 : -1); });
  const maps = view().maps, kept = maps.includes(state.map) ? state.map : maps[maps.length - 1];
  state.map = kept;
  $("map").replaceChildren(...maps.map((name) => make("option", name === kept ? { selected: "" } : {}, name)));
  const stages = view().stages;
  $("stage").max = stages.length, $("stage").value = stages.length, trained();
  const agreement = view().agreement === null ? "" : `rank correlation over pairs ${show(view().agreement)}`;
  document.querySelector("#left .about").textContent = [view().title, agreement].filter(Boolean).join(" · ");
  if (meta.known) document.querySelector("#shepard .about").textContent = `${count(arrays.pairs.length / 2, "pair")}${meta.held_out ? " of held-out items" : ", training items included"}; Spearman's ${agreement}. Click a dot to see its pair.`;
  diagram.at = -1, worst(), refresh();
}
const finalMap = () => own(`map${view().maps.indexOf(state.map)}`);
function trained() { // where the items were at a step: between two maps that were kept, in a straight line
  const stages = state.map === "PCA" ? view().stages : [];
  $("training").hidden = !stages.length;
  if (!stages.length) return planes[0].moveTo(finalMap()), actions.redraw();
  const at = Number($("stage").value), low = Math.floor(at);
  const stage = (n) => (n >= stages.length ? finalMap() : own(`stage${n}`));
  $("step").textContent = low >= stages.length ? "end" : stages[low].toLocaleString("en");
  if (low >= stages.length) return planes[0].moveTo(finalMap()), actions.redraw();
  const from = stage(low), to = stage(low + 1);
  planes[0].run = null, planes[0].upload("a", from.map((value, i) => value + (at - low) * (to[i] - value))), actions.redraw();
}

async function begin() {
  await unpack();
  let seed = 7;
  for (let i = N - 1; i > 0; i--) { // which pictures come first where not all find room: in no order of theirs
    seed = (seed * 1103515245 + 12345) % 2147483648;
    const j = seed % (i + 1);
    [state.order[i], state.order[j]] = [state.order[j], state.order[i]];
  }
  options = colourings(state), state.colour = options.keys().next().value;
  search.texts = meta.names.map((name, i) => [name, meta.words[i], ...meta.texts.map(([, texts]) => texts[i]), ...meta.columns.flatMap((column, at) => (column.kinds ? [column.kinds[arrays[`column${at}`][i]]] : []))].join(" ").toLowerCase());
  $("colour").replaceChildren(...[...options.keys()].map((name) => make("option", {}, name)));
  $("views").replaceChildren(...meta.views.map((one, number) => make("button", { type: "button", role: "tab", click: () => choose(number) }, make("bdi", {}, one.title))));
  if (meta.roles.length > 1)
    $("roles").replaceChildren(...meta.roles.map((role, at) => make("label", {}, make("input", { type: "checkbox", checked: "", change: (event) => { state.hidden[event.target.checked ? "delete" : "add"](at), refresh(); } }), " ", make("bdi", {}, role))));
  planes = (meta.known ? ["left", "right"] : ["left"]).map((id) => new Plane($(id), state, actions));
  planes[1]?.upload("a", arrays.map), planes.forEach((plane) => plane.upload("b", arrays.map));
  if (meta.known) document.querySelector("#right .about").textContent = `map of label distances (multidimensional scaling)${meta.unit ? `, ${meta.unit}` : ""}`;
  const every = Array.from({ length: N }, (_, i) => i), heldOut = every.filter((i) => meta.roles[arrays.role[i]] !== "train");
  const errors = (heldOut.length ? heldOut : every).map((i) => [far(arrays["0.error"], i), i]).sort((a, b) => a[0] - b[0]);
  state.item = errors[errors.length >> 1][1]; // one with a typical error, which no network was trained on
  choose(0);

  $("map").addEventListener("change", (event) => { (state.map = event.target.value), ($("stage").value = $("stage").max), trained(); });
  $("colour").addEventListener("change", (event) => { (state.colour = event.target.value), refresh(); });
  $("morph")?.addEventListener("input", (event) => { (planes[0].t = Number(event.target.value)), (planes[0].stale = true), actions.redraw(); });
  $("stage").addEventListener("input", trained);
  $("pictures").addEventListener("change", (event) => { (state.pictures = event.target.checked), actions.repaint(); });
  $("lasso").addEventListener("click", () => { (state.lasso = !state.lasso), $("lasso").setAttribute("aria-pressed", String(state.lasso)), document.body.classList.toggle("lassoing", state.lasso); });
  $("fit").addEventListener("click", () => { planes.forEach((plane) => plane.fit()), actions.redraw(); });
  $("search").addEventListener("input", search), $("search").addEventListener("keydown", searchKey);
  $("search").addEventListener("blur", () => ($("found").hidden = true));
  $("shepard")?.querySelector("canvas").addEventListener("click", pairAt);
  $("shepard")?.querySelector("canvas").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], count = arrays.pairs.length / 2;
    if (step) showPair((diagram.at + step + count) % count), event.preventDefault();
  });
  document.querySelectorAll("[name=kind]").forEach((radio) => radio.addEventListener("change", worst));
  $("views").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) choose((state.view + step + meta.views.length) % meta.views.length), $("views").children[state.view].focus(), event.preventDefault();
  });
  document.addEventListener("keydown", (event) => { if (event.key === "/" && !["INPUT", "SELECT"].includes(event.target.tagName)) $("search").focus(), event.preventDefault(); });
  dark.addEventListener("change", refresh), addEventListener("resize", diagram);
  new ResizeObserver(actions.redraw).observe($("left"));
  document.body.classList.add("ready");
}
begin();

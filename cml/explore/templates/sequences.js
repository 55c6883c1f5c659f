// Sequences as labels: curves of one or two items, and lines between the steps that the label distance aligns.

function sequenceOf(item) { // its steps, each an array of numbers
  const { width } = meta.sequences, from = item ? arrays.step_ends[item - 1] : 0, to = arrays.step_ends[item];
  return Array.from({ length: to - from }, (_, t) => arrays.steps.subarray((from + t) * width, (from + t + 1) * width));
}

function stepCost(one, other) { // the squared distance of two steps
  const { period } = meta.sequences;
  return one.reduce((sum, value, f) => {
    const way = Math.abs(value - other[f]), apart = period ? Math.min(way % period, period - (way % period)) : way;
    return sum + apart * apart;
  }, 0);
}

function alignSequences(one, other) { // the pairs of steps on the best alignment, and its distance
  const { band, open_ends: open, is_sum: isSum } = meta.sequences, S = one.length, T = other.length, wide = T + 1;
  const table = new Float64Array((S + 1) * wide).fill(Infinity), at = (i, j) => i * wide + j;
  for (let n = 0; n <= open; n++) {
    if (n <= T) table[at(0, n)] = 0;
    if (n <= S) table[at(n, 0)] = 0;
  }
  for (let i = 1; i <= S; i++)
    for (let j = Math.max(1, band ? i - band : 1); j <= Math.min(T, band ? i + band : T); j++) {
      const best = Math.min(table[at(i - 1, j - 1)], table[at(i - 1, j)], table[at(i, j - 1)]), step = stepCost(one[i - 1], other[j - 1]);
      table[at(i, j)] = isSum ? best + step : Math.max(best, step);
    }
  let [i, j] = [S, T];
  for (let n = 0; n <= open; n++) {
    if (n < T && table[at(S, T - n)] < table[at(i, j)]) [i, j] = [S, T - n];
    if (n < S && table[at(S - n, T)] < table[at(i, j)]) [i, j] = [S - n, T];
  }
  const distance = Math.sqrt(table[at(i, j)]), path = [];
  while (i > 0 && j > 0) {
    path.push([i - 1, j - 1]);
    const before = [[i - 1, j - 1], [i - 1, j], [i, j - 1]];
    [i, j] = before.reduce((least, cell) => (table[at(...cell)] < table[at(...least)] ? cell : least));
  }
  return { distance, path: path.reverse() };
}

// Two numbers a step are a track in the plane; others are curves over the steps, the second sequence below the first.
function plotSequences(items) {
  if (!meta.sequences) return [];
  const shown = items.map(sequenceOf), { width } = meta.sequences;
  if (shown.some((steps) => !steps.length)) return [];
  const plot = make("canvas", { class: "sequences", role: "img", "aria-label": items.length > 1 ? "The two sequences, with lines between the steps that are aligned" : "The sequence" });
  const [wide, tall, edge] = [364, width === 2 || items.length > 1 ? 220 : 120, 8], ratio = devicePixelRatio || 1;
  plot.width = wide * ratio, plot.height = tall * ratio;
  const pen = plot.getContext("2d"), colours = [state.hue("embedding"), state.hue("label")];
  const range = (values) => { let [low, high] = [Infinity, -Infinity]; for (const value of values) (low = Math.min(low, value)), (high = Math.max(high, value)); return [low, high > low ? high : low + 1]; };
  const numbers = (f) => shown.flatMap((steps) => steps.map((step) => step[f]));
  let spot; // where a number of a step of one of the sequences lies
  if (width === 2) {
    const [x, y] = [range(numbers(0)), range(numbers(1))], scale = Math.min((wide - 2 * edge) / (x[1] - x[0]), (tall - 2 * edge) / (y[1] - y[0]));
    spot = (which, t) => [wide / 2 + scale * (shown[which][t][0] - (x[0] + x[1]) / 2), tall / 2 - scale * (shown[which][t][1] - (y[0] + y[1]) / 2)];
  } else {
    const longest = Math.max(2, ...shown.map((steps) => steps.length)), [low, high] = range(shown.flatMap((steps) => steps.flatMap((step) => [...step])));
    const each = items.length > 1 ? 0.42 * tall : tall - 2 * edge;
    spot = (which, t, f = 0) => [edge + (t / (longest - 1)) * (wide - 2 * edge), (which ? tall - edge : edge + each) - ((shown[which][t][f] - low) / (high - low)) * each];
  }
  pen.scale(ratio, ratio);
  if (items.length > 1) {
    pen.strokeStyle = getComputedStyle(document.body).getPropertyValue("--quiet"), pen.globalAlpha = 0.45;
    for (const [i, j] of alignSequences(...shown).path) pen.beginPath(), pen.moveTo(...spot(0, i)), pen.lineTo(...spot(1, j)), pen.stroke();
  }
  shown.forEach((steps, which) => {
    pen.strokeStyle = pen.fillStyle = colours[which], pen.lineWidth = 2;
    for (let f = 0; f < (width === 2 ? 1 : width); f++) {
      pen.globalAlpha = f ? 0.45 : 1, pen.beginPath(), steps.forEach((_, t) => pen.lineTo(...spot(which, t, f))), pen.stroke();
      if (steps.length < 40) steps.forEach((_, t) => { pen.beginPath(), pen.arc(...spot(which, t, f), 2, 0, 7), pen.fill(); });
    }
  });
  const key = (which) => make("span", {}, make("i", { style: { background: colours[which] } }), make("bdi", {}, meta.names[items[which]]));
  return [plot, ...(items.length > 1 ? [make("p", { class: "keys" }, key(0), key(1)), make("p", { class: "about" }, `Grey lines join the steps that the label distance compares${width > 2 ? "; the first number of a step is drawn strongest" : ""}.`)] : [])];
}

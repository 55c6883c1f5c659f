// A map: points by WebGL, or by a plain canvas where there is none; rings, lines and pictures above them.

const VERTEX = `attribute vec2 a, b; attribute vec4 c; uniform float t; uniform mediump float size; uniform vec3 view; varying vec4 v;
void main() { gl_Position = vec4(mix(a, b, t) * view.z + view.xy, 0., 1.); gl_PointSize = size; v = c; }`;
const FRAGMENT = `precision mediump float; uniform mediump float size; varying vec4 v;
void main() { float r = size * length(gl_PointCoord - .5), edge = size * .5;
float rim = smoothstep(edge - 2.2, edge - 1.2, r); float alpha = v.a * (1. - smoothstep(edge - 1., edge, r));
gl_FragColor = vec4(v.rgb * (1. - .3 * rim) * alpha, alpha); }`;

class Plane {
  constructor(root, state, actions) {
    this.root = root.querySelector(".plane");
    [this.canvas, this.over] = this.root.querySelectorAll("canvas");
    this.pen = this.over.getContext("2d");
    this.state = state, this.actions = actions;
    this.a = this.b = new Int16Array(2 * N), this.colours = new Uint8Array(4 * N);
    this.t = 0, this.view = { x: 0, y: 0, z: 0.94 }, this.pointers = new Map(), this.path = null;
    this.canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    this.canvas.addEventListener("webglcontextrestored", () => this.begin());
    this.begin();
    this.listen();
    new ResizeObserver(() => this.resize()).observe(this.root);
  }

  begin() {
    const gl = (this.gl = this.canvas.getContext("webgl", { antialias: false, alpha: true }));
    if (!gl) return (this.flat = this.canvas.getContext("2d"));
    const program = gl.createProgram();
    for (const [kind, text] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, text), gl.compileShader(shader), gl.attachShader(program, shader);
    }
    gl.linkProgram(program), gl.useProgram(program);
    gl.enable(gl.BLEND), gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    this.at = Object.fromEntries(["t", "size", "view"].map((name) => [name, gl.getUniformLocation(program, name)]));
    this.buffers = Object.fromEntries(["a", "b", "c"].map((name) => {
      const buffer = gl.createBuffer(), place = gl.getAttribLocation(program, name);
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer), gl.enableVertexAttribArray(place);
      gl.vertexAttribPointer(place, name === "c" ? 4 : 2, name === "c" ? gl.UNSIGNED_BYTE : gl.SHORT, true, 0, 0);
      return [name, buffer];
    }));
    this.upload("a", this.a), this.upload("b", this.b), this.upload("c", this.colours);
  }

  upload(name, values) {
    this[name === "c" ? "colours" : name] = values;
    if (this.gl) this.gl.bindBuffer(this.gl.ARRAY_BUFFER, this.buffers[name]), this.gl.bufferData(this.gl.ARRAY_BUFFER, values, this.gl.DYNAMIC_DRAW);
    this.stale = true;
  }

  moveTo(target) { // in a third of a second, unless the reader wants no motion
    const from = this.a, began = performance.now(), run = (this.run = {});
    const step = (now) => {
      if (this.run !== run) return;
      const part = still.matches || N > 20000 ? 1 : Math.min(1, (now - began) / 350), ease = part * part * (3 - 2 * part);
      this.upload("a", part === 1 ? target : target.map((value, i) => from[i] + ease * (value - from[i])));
      if (part < 1) requestAnimationFrame(step);
    };
    step(began + (from.some((value) => value) ? 0 : 350));
  }

  resize() {
    const side = this.root.clientWidth, ratio = devicePixelRatio || 1;
    this.side = side, this.ratio = ratio;
    for (const canvas of [this.canvas, this.over]) canvas.width = canvas.height = Math.max(1, Math.round(side * ratio));
    this.stale = true;
  }

  place(item) { // in CSS pixels
    const x = this.a[2 * item] + this.t * (this.b[2 * item] - this.a[2 * item]), y = this.a[2 * item + 1] + this.t * (this.b[2 * item + 1] - this.a[2 * item + 1]);
    return [((x / 32767) * this.view.z + this.view.x + 1) * 0.5 * this.side, (1 - (y / 32767) * this.view.z - this.view.y) * 0.5 * this.side];
  }

  dot() { return Math.min(18, (N > 30000 ? 3 : N > 4000 ? 5 : N > 1500 ? 7 : 8) * Math.max(1, this.view.z) ** 0.35 * (this.side < 420 ? 0.85 : 1)); }

  nearest(x, y, reach = 14, fits = (i) => this.state.shown(i)) {
    let found = -1, least = reach * reach;
    for (let i = 0; i < N; i++) {
      const [px, py] = this.place(i), d = (px - x) ** 2 + (py - y) ** 2;
      if (d < least && fits(i)) (least = d), (found = i);
    }
    return found;
  }

  draw() {
    if (!this.stale || !this.side) return;
    this.stale = false;
    const { gl, view, ratio } = this, size = this.dot() * ratio;
    if (gl) {
      gl.viewport(0, 0, this.canvas.width, this.canvas.height);
      gl.clearColor(0, 0, 0, 0), gl.clear(gl.COLOR_BUFFER_BIT);
      gl.uniform1f(this.at.t, this.t), gl.uniform1f(this.at.size, size), gl.uniform3f(this.at.view, view.x, view.y, view.z);
      gl.drawArrays(gl.POINTS, 0, N);
    } else {
      this.flat.setTransform(ratio, 0, 0, ratio, 0, 0), this.flat.clearRect(0, 0, this.side, this.side);
      for (let i = 0; i < N; i++) {
        const [x, y] = this.place(i), [r, g, b, a] = this.colours.subarray(4 * i, 4 * i + 4);
        (this.flat.fillStyle = `rgba(${r},${g},${b},${a / 255})`), this.flat.fillRect(x - size / ratio / 2, y - size / ratio / 2, size / ratio, size / ratio);
      }
    }
    this.overlay();
  }

  overlay() {
    const { pen, state, side } = this, ink = dark.matches ? "#fff" : "#1d1c1a";
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0), pen.clearRect(0, 0, side, side);
    if (state.pictures) this.thumbnails();
    const line = (from, to, colour, width) => {
      pen.beginPath(), pen.moveTo(...this.place(from)), pen.lineTo(...this.place(to));
      (pen.strokeStyle = colour), (pen.lineWidth = width), pen.stroke();
    };
    const ring = (item, colour, radius, width = 2) => {
      pen.beginPath(), pen.arc(...this.place(item), radius, 0, 7);
      (pen.strokeStyle = colour), (pen.lineWidth = width), pen.stroke();
    };
    const radius = this.dot() / 2 + 3;
    if (state.pair) {
      line(...state.pair, ink, 2);
      for (const item of state.pair) ring(item, ink, radius + 2, 2.5);
    } else if (state.item >= 0) {
      const by = { label: arrays.ids, embedding: arrays[`${state.view}.ids`] }, names = meta.known ? ["label", "embedding"] : ["embedding"];
      for (const name of names)
        for (let place = 0; place < K; place++) line(state.item, by[name][state.item * K + place], state.hue(name), 1.4);
      for (const name of names)
        for (let place = 0; place < K; place++) ring(by[name][state.item * K + place], state.hue(name), name === "label" ? radius - 1 : radius + 1.5);
      ring(state.item, dark.matches ? "#000" : "#fff", radius + 4.5, 5), ring(state.item, ink, radius + 4, 2.5);
    }
    if (state.hover >= 0) ring(state.hover, ink, radius + 2, 2);
    if (this.path) {
      pen.beginPath(), this.path.forEach(([x, y]) => pen.lineTo(x, y)), pen.closePath();
      (pen.fillStyle = dark.matches ? "#ffffff18" : "#00000012"), pen.fill();
      (pen.strokeStyle = ink), (pen.lineWidth = 1.5), pen.setLineDash([5, 4]), pen.stroke(), pen.setLineDash([]);
    }
  }

  thumbnails() { // as many as find room, the same ones as long as they are in view
    const { pen, side } = this, size = Math.min(96, 34 * Math.max(1, this.view.z) ** 0.3), taken = new Map(), cell = size + 4;
    pen.imageSmoothingQuality = "high";
    for (let n = 0; n < N; n++) {
      const item = this.state.order[n];
      if (this.colours[4 * item + 3] < 100) continue;
      const [x, y] = this.place(item);
      if (x < -size || y < -size || x > side + size || y > side + size) continue;
      const column = Math.floor(x / cell), row = Math.floor(y / cell);
      let free = true;
      for (let dx = -1; dx <= 1 && free; dx++)
        for (let dy = -1; dy <= 1 && free; dy++) {
          const other = taken.get(`${column + dx},${row + dy}`);
          free = !other || Math.max(Math.abs(other[0] - x), Math.abs(other[1] - y)) >= cell;
        }
      if (!free) continue;
      taken.set(`${column},${row}`, [x, y]);
      const image = bitmap(item, this.actions.repaint);
      if (!image) continue;
      const scale = size / Math.max(image.width, image.height), w = image.width * scale, h = image.height * scale;
      pen.fillStyle = css(this.colours.subarray(4 * item, 4 * item + 3));
      pen.fillRect(x - w / 2 - 2, y - h / 2 - 2, w + 4, h + 4), pen.drawImage(image, x - w / 2, y - h / 2, w, h);
    }
  }

  zoom(factor, x = this.side / 2, y = this.side / 2) {
    const z = Math.min(200, Math.max(0.5, this.view.z * factor)), real = z / this.view.z;
    const cx = (2 * x) / this.side - 1, cy = 1 - (2 * y) / this.side;
    this.view = { z, x: cx - (cx - this.view.x) * real, y: cy - (cy - this.view.y) * real };
    this.root.style.touchAction = z > 1 ? "none" : "pan-y";
    this.stale = true;
  }

  fit() { this.view = { x: 0, y: 0, z: 0.94 }, (this.root.style.touchAction = "pan-y"), (this.stale = true); }

  walk(dx, dy) { // to the nearest item that lies that way
    const from = this.state.item;
    if (from < 0) return this.actions.select(this.nearest(this.side / 2, this.side / 2, Infinity));
    const [x, y] = this.place(from);
    let found = -1, least = Infinity;
    for (let i = 0; i < N; i++) {
      if (i === from || !this.state.shown(i)) continue;
      const [px, py] = this.place(i), along = (px - x) * dx + (py - y) * dy, aside = Math.abs((px - x) * dy) + Math.abs((py - y) * dx);
      if (along > 0 && aside <= along && along + 2 * aside < least) (least = along + 2 * aside), (found = i);
    }
    if (found >= 0) this.actions.select(found);
  }

  listen() {
    const { root, pointers } = this;
    const spot = (event) => { const box = root.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    root.addEventListener("wheel", (event) => { event.preventDefault(), this.zoom(Math.exp(-0.0016 * event.deltaY * (event.deltaMode ? 20 : 1)), ...spot(event)), this.actions.redraw(); }, { passive: false });
    root.addEventListener("dblclick", (event) => { this.zoom(1.8, ...spot(event)), this.actions.redraw(); });
    root.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      const at = spot(event);
      pointers.set(event.pointerId, at), (this.moved = 0), (this.from = at), root.setPointerCapture(event.pointerId);
      if ((event.shiftKey || this.state.lasso) && pointers.size === 1) this.path = [at];
      else this.path = null;
    });
    root.addEventListener("pointermove", (event) => {
      const at = spot(event), last = pointers.get(event.pointerId);
      if (!last) return this.actions.hover(this.nearest(...at), event);
      this.moved = Math.max(this.moved, Math.hypot(at[0] - this.from[0], at[1] - this.from[1]));
      pointers.set(event.pointerId, at);
      if (this.path) this.path.push(at);
      else if (pointers.size === 2) {
        const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
        this.zoom(Math.hypot(at[0] - other[0], at[1] - other[1]) / Math.max(1, Math.hypot(last[0] - other[0], last[1] - other[1])), (at[0] + other[0]) / 2, (at[1] + other[1]) / 2);
      } else if (this.moved > 4) (this.view.x += (2 * (at[0] - last[0])) / this.side), (this.view.y -= (2 * (at[1] - last[1])) / this.side);
      this.stale = true, this.actions.redraw();
    });
    const up = (event) => {
      if (!pointers.delete(event.pointerId)) return;
      const path = this.path;
      this.path = null, this.stale = true;
      if (path && path.length > 2) this.actions.lassoed(this.inside(path));
      else if (event.type === "pointerup" && this.moved <= 4) {
        const found = this.nearest(...spot(event), event.pointerType === "touch" ? 24 : 14);
        this.actions.select(found);
      }
      this.actions.redraw();
    };
    root.addEventListener("pointerup", up), root.addEventListener("pointercancel", up);
    root.addEventListener("pointerleave", () => this.actions.hover(-1));
    root.addEventListener("keydown", (event) => {
      const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (ways[event.key]) this.walk(...ways[event.key]);
      else if (event.key === "+" || event.key === "=") this.zoom(1.3);
      else if (event.key === "-") this.zoom(1 / 1.3);
      else if (event.key === "0") this.fit();
      else if (event.key === "e" || (event.key === "l" && meta.known)) this.actions.next(event.key === "e" ? arrays[`${this.state.view}.ids`] : arrays.ids);
      else if (event.key === "Escape") this.actions.select(-1);
      else return;
      event.preventDefault(), this.actions.redraw();
    });
  }

  inside(path) {
    const found = [];
    for (let i = 0; i < N; i++) {
      if (!this.state.shown(i)) continue;
      const [x, y] = this.place(i);
      let odd = false;
      for (let at = 0, last = path.length - 1; at < path.length; last = at++) {
        const [ax, ay] = path[at], [bx, by] = path[last];
        if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) odd = !odd;
      }
      if (odd) found.push(i);
    }
    return found;
  }
}

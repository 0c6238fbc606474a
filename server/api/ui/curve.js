// Bars and lines on a canvas. Owns drawing and nothing that is drawn.

const styleOf = (canvas, name) => getComputedStyle(canvas).getPropertyValue(name).trim();

function prepared(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

// `heights`: between 0 and 1. More of them than pixels share a bar, which shows the highest.
export function drawBars(canvas, heights, { selected = -1, colours = null } = {}) {
  const { context, width, height } = prepared(canvas);
  if (!heights.length || !width) return;
  const step = Math.min(8, width / heights.length);
  const ink = styleOf(canvas, "--bar");
  const n = Math.min(heights.length, Math.floor(width));
  for (let k = 0; k < n; k += 1) {
    const start = Math.floor((k * heights.length) / n);
    const end = Math.max(start + 1, Math.floor(((k + 1) * heights.length) / n));
    let top = 0;
    let tone = 0;
    for (let i = start; i < end; i += 1) {
      if (heights[i] >= top) [top, tone] = [heights[i], colours?.[i] ?? 0];
    }
    const x = start * step;
    const w = Math.max(1, (end - start) * step - (step > 3 ? 1 : 0));
    context.fillStyle = selected >= start && selected < end
      ? styleOf(canvas, "--ink") : colours ? styleOf(canvas, `--tone-${tone}`) : ink;
    const bar = Math.max(1, top * (height - 2));
    context.fillRect(x, height - bar, w, bar);
  }
}

// Which of `n` bars is at x.
export function barAt(canvas, x, n) {
  const step = Math.min(8, canvas.clientWidth / n);
  const index = Math.floor(x / step);
  return index >= 0 && index < n ? index : -1;
}

// `values`: one per second, the newest last; null: a gap. `top`: the value at the upper edge.
export function drawLine(canvas, values, { top, count }) {
  const { context, width, height } = prepared(canvas);
  const step = width / (count - 1);
  const x = (i) => width - (values.length - 1 - i) * step;
  const y = (value) => height - 2 - (height - 6) * Math.min(1, value / top);
  context.strokeStyle = styleOf(canvas, "--line");
  context.lineWidth = 1;
  for (const part of [0, 0.5, 1]) line(context, [[0, y(part * top)], [width, y(part * top)]]);
  context.fillStyle = styleOf(canvas, "--faint");
  context.font = "11px system-ui, sans-serif";
  context.fillText(String(Number(top.toPrecision(2))), 0, y(top) + 12);
  context.strokeStyle = context.fillStyle = styleOf(canvas, "--bar-strong");
  context.lineWidth = 1.75;
  let points = [];
  const flush = () => {
    if (points.length > 1) line(context, points);
    else if (points.length) context.fillRect(points[0][0] - 1.5, points[0][1] - 1.5, 3, 3);
    points = [];
  };
  values.forEach((value, i) => {
    if (value === null) flush();
    else points.push([x(i), y(value)]);
  });
  flush();
}

function line(context, points) {
  context.beginPath();
  points.forEach(([x, y], i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.stroke();
}

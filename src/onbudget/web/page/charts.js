// Draws the charts that prove/curves.py and prove/series.py describe, with uPlot. The page's tables say the same without.
"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3]];
  const BORDERS = ["solid", "dashed", "dotted", "double"]; // the same in the legend
  const SIGNS = ["●", "■", "◆", "▲"];
  const ROW = 17; // pixels of a label above the chart
  const FONT = "12px system-ui, sans-serif";
  const figures = [];

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const own = (index) => colour(`line-${index % 4}`);
  const kind = (index) => (index + Math.floor(index / 4)) % 4; // of dashes and signs: with the colour, 16 different lines
  const show = (value) => value.toLocaleString("en", { maximumSignificantDigits: 3 });
  const known = (value) => value !== null && value !== undefined;

  // ---- numbers ----------------------------------------------------------------------------------------------------

  /** y of a line at x, between its points; undefined beyond its ends and beside what has no bound. */
  function at(line, x) {
    const right = line.x.findIndex((each) => each >= x);
    if (right < 0) return undefined;
    if (line.x[right] === x) return line.y[right];
    const [low, high] = [line.y[right - 1], line.y[right]];
    if (!known(low) || !known(high)) return undefined;
    return low + ((high - low) * (x - line.x[right - 1])) / (line.x[right] - line.x[right - 1]);
  }

  /** What to show: from, to; `roof` is where the lane of times without bound begins, `top` where they are drawn. */
  function extent(chart) {
    const ys = chart.lines.flatMap((line) => line.y);
    ys.push(...chart.points.flatMap((point) => [point.y, point.high]), ...chart.across.map((mark) => mark.at));
    const finite = ys.filter((y) => known(y) && y > 0);
    const [least, most] = [Math.min(...finite), Math.max(...finite)];
    const endless = ys.includes(null);
    const [from, step] = chart.y.scale === "log" ? [least, (most / least) ** 0.08] : [0, 1.1];
    const roof = most * step;
    return { from: from / step, roof, top: endless ? roof * Math.sqrt(step) : roof, to: endless ? roof * step : roof };
  }

  function ticks(from, to, factors, base) {
    const found = [];
    for (let power = Math.floor(Math.log(from) / Math.log(base)); base ** power <= to; power += 1)
      found.push(...factors.map((factor) => Number((factor * base ** power).toPrecision(6))));
    return found.filter((value) => value >= from && value <= to);
  }

  function scaleX(chart) {
    if (chart.x.scale === "places") return { time: false, range: [0.4, chart.x.ticks.length + 0.6] };
    const xs = [...chart.lines.flatMap((line) => line.x), ...chart.points.map((point) => point.x)];
    const most = Math.max(...xs, ...chart.upright.map((mark) => mark.at));
    if (chart.x.scale === "percentile") return { time: false, distr: 3, log: 10, range: [1, Math.max(most, 1.001) * 1.1] };
    if (chart.x.scale !== "log2") return { time: false, range: [0, most * 1.05] };
    return { time: false, distr: 3, log: 2, range: [Math.min(...xs) / 1.15, most * 1.15] };
  }

  /** x in words: a percentile, a kind of sizes, or a number. */
  function named(chart, x) {
    if (!known(x)) return "";
    if (chart.x.scale === "percentile") return `${Number((100 * (1 - 1 / x)).toPrecision(7))} %`;
    return chart.x.ticks?.find(([at]) => at === x)?.[1] ?? show(x);
  }

  // ---- what uPlot does not draw -----------------------------------------------------------------------------------

  function sign(ctx, which, x, y, r) {
    ctx.beginPath();
    if (which === 0) ctx.arc(x, y, r, 0, 2 * Math.PI);
    else if (which === 1) ctx.rect(x - r * 0.9, y - r * 0.9, r * 1.8, r * 1.8);
    else {
      ctx.moveTo(x, y - r * 1.3);
      ctx.lineTo(x + r * 1.2, which === 2 ? y : y + r);
      if (which === 2) ctx.lineTo(x, y + r * 1.3);
      ctx.lineTo(x - r * 1.2, which === 2 ? y : y + r);
      ctx.closePath();
    }
  }

  function stroke(ctx, from, to, dash = []) {
    ctx.setLineDash(dash.map((part) => part * uPlot.pxRatio));
    ctx.beginPath();
    ctx.moveTo(...from);
    ctx.lineTo(...to);
    ctx.stroke();
    ctx.setLineDash([]);
  }

  /** Side by side at each place, with their signs' colours. */
  function bars(ctx, chart, toX, toY) {
    const each = ((toX(2) - toX(1)) * 0.8) / chart.lines.length;
    const wide = Math.min(each, 48 * uPlot.pxRatio);
    chart.lines.forEach((line, index) => {
      ctx.fillStyle = own(index);
      line.x.forEach((x, at) => {
        const left = toX(x) + (index - chart.lines.length / 2) * wide;
        ctx.fillRect(left, toY(line.y[at]), wide * 0.92, toY(0) - toY(line.y[at]));
      });
    });
  }

  function marks(plot, chart, { from, roof, top, to }) {
    const { ctx, bbox: box } = plot;
    const [px, right, bottom] = [uPlot.pxRatio, box.left + box.width, box.top + box.height];
    const toX = (x) => plot.valToPos(x, "x", true);
    const toY = (y) => plot.valToPos(known(y) ? Math.max(y, from) : top, "y", true);
    const text = (words, x, y) => {
      const fits = x + 8 * px + ctx.measureText(words).width < right;
      ctx.textAlign = fits ? "left" : "right";
      ctx.fillText(words, x + (fits ? 4 : -4) * px, y);
    };
    const shared = (one) => chart.x.scale === "linear" && chart.points.some((each) => each !== one && each.x === one.x);
    const beside = (one) => (shared(one) ? (one.line - (chart.lines.length - 1) / 2) * 7 * px : 0);
    ctx.save();
    ctx.font = `${12 * px}px system-ui, sans-serif`;
    ctx.lineWidth = 1.5 * px;
    ctx.fillStyle = colour("ink");
    ctx.strokeStyle = colour("muted");
    chart.upright.forEach((mark, index) => {
      const head = box.top - (ROW * (chart.upright.length - index) - 4) * px;
      stroke(ctx, [toX(mark.at), head], [toX(mark.at), bottom], [1, 3]);
      text(mark.label, toX(mark.at), head + 9 * px);
    });
    if (to > roof) {
      stroke(ctx, [box.left, toY(roof)], [right, toY(roof)]);
      text(chart.y.unbounded, box.left, toY(top) + 4 * px);
    }
    if (chart.bars) bars(ctx, chart, toX, toY);
    ctx.strokeStyle = colour("bad");
    ctx.fillStyle = colour("ink");
    for (const mark of chart.across) {
      stroke(ctx, [box.left, toY(mark.at)], [right, toY(mark.at)], [9, 4]);
      text(mark.label, box.left, toY(mark.at) - 6 * px);
    }
    for (const point of chart.points) {
      const [x, y, high, low] = [toX(point.x) + beside(point), toY(point.y), toY(point.high), toY(point.low)];
      ctx.strokeStyle = own(point.line);
      stroke(ctx, [x, low], [x, high]);
      for (const end of [low, high]) stroke(ctx, [x - 4 * px, end], [x + 4 * px, end]);
      sign(ctx, kind(point.line), x, y, 4 * px);
      ctx.fillStyle = point.hollow ? colour("paper") : own(point.line);
      ctx.fill();
      ctx.stroke();
    }
    ctx.restore();
  }

  // ---- a chart ----------------------------------------------------------------------------------------------------

  function draw(box, chart) {
    const all = [...chart.lines.flatMap((line) => line.x), ...chart.points.map((point) => point.x)];
    const xs = [...new Set(all)].sort((a, b) => a - b);
    const reach = extent(chart);
    const place = (y) => (y === null ? reach.top : y);
    const unit = chart.y.unit ?? "ms";
    const endless = reach.to > reach.roof;
    const value = (plot, y) =>
      !known(y) ? "" : endless && y === reach.top ? (chart.y.unit ? chart.y.unbounded : "without bound") : `${show(y)} ${unit}`;
    const axis = (side, more) => ({
      label: side.scale === "log" ? `${side.label} (log scale)` : side.label,
      labelFont: FONT,
      labelSize: 20,
      font: FONT,
      stroke: colour("ink"),
      grid: { stroke: colour("rule"), width: 1 },
      ticks: { stroke: colour("rule"), width: 1 },
      values: (plot, splits) => splits.map((split) => (side === chart.y && split > reach.roof ? "" : show(split))),
      ...more,
    });
    const stepped = (plot, index, from, to) => {
      const few = ticks(from, to, [1, 2, 5], 10);
      return few.length > 2 ? few : ticks(from, to, [1, 1.5, 2, 3, 4, 5, 6, 8], 10);
    };
    const doubled = (plot, index, from, to) => ticks(from, to, [1], 2);
    const every = (plot, splits) => splits;
    const told = chart.x.ticks ?? [];
    /** Words at their places, those left out that would run into the one before. */
    const worded = (plot, splits) => {
      let free = -Infinity;
      return splits.map((split) => {
        const [words, at] = [told.find(([x]) => x === split)?.[1] ?? "", plot.valToPos(split, "x")];
        if (at - words.length * 3.5 < free) return "";
        free = at + words.length * 3.5 + 6;
        return words;
      });
    };
    const places = { splits: () => told.map(([x]) => x), filter: every, values: worded };
    const options = {
      width: box.clientWidth,
      height: Number(box.dataset.height),
      scales: {
        x: scaleX(chart),
        y: { range: [reach.from, reach.to], ...(chart.y.scale === "log" ? { distr: 3 } : {}) },
      },
      axes: [
        axis(chart.x, {
          size: 36,
          ...(chart.x.scale === "log2" ? { splits: doubled, filter: every } : {}),
          ...(chart.x.ticks ? places : {}),
        }),
        axis(chart.y, { size: 58, ...(chart.y.scale === "log" ? { splits: stepped, filter: every } : {}) }),
      ],
      series: [
        { label: chart.x.label, value: (plot, x) => named(chart, x) },
        ...chart.lines.map((line, index) => ({
          label: chart.points.length ? `${SIGNS[kind(index)]} ${line.label}` : line.label,
          stroke: own(index),
          dash: DASHES[kind(index)],
          width: chart.bars ? 0 : 2,
          spanGaps: true,
          points: { show: false },
          value,
        })),
      ],
      padding: [8 + ROW * chart.upright.length, 16, null, null],
      legend: { markers: { width: 2, dash: (plot, index) => (chart.bars ? "solid" : BORDERS[kind(index - 1)]) } },
      cursor: { drag: { x: false, y: false }, dataIdx: (plot, series, index) => index },
      hooks: { draw: [(plot) => marks(plot, chart, reach)] },
    };
    return new uPlot(options, [xs, ...chart.lines.map((line) => xs.map((x) => place(at(line, x))))], box);
  }

  function drawAll() {
    for (const figure of figures) {
      figure.plot?.destroy();
      figure.plot = draw(figure.box, figure.chart);
    }
  }

  /** The arrows move the cursor, and the legend tells the values there. */
  function step(event, plot) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const last = plot.data[0].length - 1;
    const index = Math.min(last, Math.max(0, (plot.cursor.idx ?? (by > 0 ? -1 : last + 1)) + by));
    plot.setCursor({ left: plot.valToPos(plot.data[0][index], "x"), top: 0 });
  }

  for (const [name, chart] of Object.entries(charts)) {
    const figure = { box: document.getElementById(name), chart };
    figures.push(figure);
    figure.box.addEventListener("keydown", (event) => step(event, figure.plot));
  }
  drawAll();
  for (const [event, paper] of [["beforeprint", true], ["afterprint", false]])
    addEventListener(event, () => {
      document.documentElement.classList.toggle("paper", paper);
      drawAll();
    });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  addEventListener("resize", () => {
    for (const { box, plot } of figures) plot.setSize({ width: box.clientWidth, height: plot.height });
  });
})();

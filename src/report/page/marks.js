// What the charts show beyond bars and lines: plugins of the chart library, told by a chart's own options.

function halo(pen, text, x, y, colour) {
  pen.lineWidth = 4;
  pen.lineJoin = 'round';
  pen.strokeStyle = ink('paper');
  pen.strokeText(text, x, y);
  pen.fillStyle = colour;
  pen.fillText(text, x, y);
}

function cross(pen, x, y, size, colour) {
  for (const [width, style] of [[5, ink('paper')], [2.4, colour]]) {
    pen.lineWidth = width;
    pen.strokeStyle = style;
    pen.lineCap = 'round';
    pen.beginPath();
    pen.moveTo(x - size, y - size);
    pen.lineTo(x + size, y + size);
    pen.moveTo(x + size, y - size);
    pen.lineTo(x - size, y + size);
    pen.stroke();
  }
}

// A cross, and as far as there is room a word, where a point ran out of memory. A dataset says so in `marks`, a word or
// null for each of its values.
const outOfMemoryMarks = {
  id: 'outOfMemory',
  afterDatasetsDraw(chart) {
    const pen = chart.ctx, {top, bottom} = chart.chartArea;
    pen.save();
    pen.font = '11.5px system-ui, sans-serif';
    chart.data.datasets.forEach((dataset, place) => {
      if (!dataset.marks || !chart.isDatasetVisible(place)) return;
      chart.getDatasetMeta(place).data.forEach((bar, index) => {
        const word = dataset.marks[index];
        if (!word) return;
        const full = dataset.data[index] !== null;
        const size = Math.max(2.5, Math.min(5, (bar.width ?? 12) * 0.3));
        const y = full ? Math.max(bar.y, top) + size + 4 : bottom - size - 5;
        cross(pen, bar.x, y, size, ink('alarm'));
        if ((bar.width ?? 0) < 13) return;
        // Upwards from the axis, or from the cross where there is no bar.
        const from = full ? bottom - 8 : y - size - 7;
        if (from - pen.measureText(word).width < (full ? y + size : top)) return;
        pen.translate(bar.x, from);
        pen.rotate(-Math.PI / 2);
        pen.textBaseline = 'middle';
        halo(pen, word, 0, 0, ink('soft'));
        pen.rotate(Math.PI / 2);
        pen.translate(-bar.x, -from);
      });
    });
    pen.restore();
  },
};

// From the 20 % to the 80 % quantile: a dataset's `spread`, [low, high] or null for each value.
const whiskers = {
  id: 'whiskers',
  afterDatasetsDraw(chart) {
    const pen = chart.ctx, across = chart.options.indexAxis === 'y';
    pen.save();
    pen.strokeStyle = ink('ink');
    pen.lineWidth = 1.2;
    chart.data.datasets.forEach((dataset, place) => {
      if (!dataset.spread || !chart.isDatasetVisible(place)) return;
      const scale = chart.scales[across ? 'x' : 'y'];
      chart.getDatasetMeta(place).data.forEach((bar, index) => {
        const spread = dataset.spread[index];
        if (!spread) return;
        const [low, high] = spread.map((value) => scale.getPixelForValue(value));
        if (Math.abs(high - low) < 2) return;
        pen.beginPath();
        if (across) {
          pen.moveTo(low, bar.y);
          pen.lineTo(high, bar.y);
        } else {
          pen.moveTo(bar.x, low);
          pen.lineTo(bar.x, high);
        }
        pen.stroke();
      });
    });
    pen.restore();
  },
};

// A line across the chart at a value, with a word: options.plugins.limit = {value, text}.
const limitLine = {
  id: 'limit',
  afterDatasetsDraw(chart, _, options) {
    if (!options.value) return;
    const pen = chart.ctx, {left, right, top, bottom} = chart.chartArea, across = chart.options.indexAxis === 'y';
    const at = chart.scales[across ? 'x' : 'y'].getPixelForValue(options.value);
    if (across ? at < left || at > right : at < top || at > bottom) return;
    pen.save();
    pen.strokeStyle = ink('alarm');
    pen.lineWidth = 1.5;
    pen.setLineDash([6, 4]);
    pen.beginPath();
    pen.moveTo(across ? at : left, across ? top : at);
    pen.lineTo(across ? at : right, across ? bottom : at);
    pen.stroke();
    pen.setLineDash([]);
    pen.font = '600 12px system-ui, sans-serif';
    if (across) {
      pen.textBaseline = 'top';
      halo(pen, options.text, at + 5, top + 2, ink('alarm'));
    } else {
      // Below the line where there is no room over it.
      pen.textBaseline = at - top < 24 ? 'top' : 'bottom';
      halo(pen, options.text, left + 6, at - top < 24 ? at + 5 : at - 4, ink('alarm'));
    }
    pen.restore();
  },
};

// The names of a step's phases over the chart, and a line where one ends: options.plugins.phases = [{name, begin, end}].
const phaseBands = {
  id: 'phases',
  afterDatasetsDraw(chart, _, options) {
    if (!options.list?.length) return;
    const pen = chart.ctx, {left, right, top, bottom} = chart.chartArea, scale = chart.scales.x;
    pen.save();
    pen.font = '12px system-ui, sans-serif';
    pen.textBaseline = 'bottom';
    let free = left;
    for (const phase of options.list) {
      const from = Math.max(left, scale.getPixelForValue(phase.begin)), to = Math.min(right, scale.getPixelForValue(phase.end));
      if (to < left || from > right) continue;
      pen.strokeStyle = ink('faint');
      pen.globalAlpha = 0.55;
      pen.lineWidth = 1;
      pen.beginPath();
      pen.moveTo(Math.round(from) + 0.5, top - 14);
      pen.lineTo(Math.round(from) + 0.5, bottom);
      pen.stroke();
      pen.globalAlpha = 1;
      // Where a name has no room it moves the next one on, as long as that still stands in its own phase.
      const at = Math.max(from + 5, free), width = pen.measureText(phase.name).width;
      if (at > Math.max(to, from + 6) || at + width > right + 10) continue;
      pen.fillStyle = ink('soft');
      pen.fillText(phase.name, at, top - 2);
      free = at + width + 8;
    }
    pen.restore();
  },
};

// What a horizontal bar stands for, at its end: a dataset's `words`, one for each value.
const endWords = {
  id: 'endWords',
  afterDatasetsDraw(chart) {
    const pen = chart.ctx;
    pen.save();
    pen.font = '11.5px system-ui, sans-serif';
    pen.textBaseline = 'middle';
    chart.data.datasets.forEach((dataset, place) => {
      if (!dataset.words) return;
      chart.getDatasetMeta(place).data.forEach((bar, index) => {
        if (dataset.words[index]) halo(pen, dataset.words[index], bar.x + 6, bar.y, ink('soft'));
      });
    });
    pen.restore();
  },
};

Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
Chart.register(endWords, outOfMemoryMarks, whiskers, limitLine, phaseBands);

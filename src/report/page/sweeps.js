// Throughput and peak memory per strategy, as bars over batch sizes or sequence lengths, and as lines.

const AXES = {
  batch: {id: 'batches', size: batchOf, other: (point) => point.seq, word: 'Batch', fixed: (seq) => `${seq} tokens a sequence`},
  seq: {id: 'sequences', size: (point) => point.seq, other: batchOf, word: 'Sequence', fixed: (batch) => `batch ${batch}`},
};

// The other sizes at which there is something to compare: two sizes at least; the one with the most points first.
function sweepsOf(axis) {
  return distinct(points.map(axis.other).filter(Number.isFinite))
    .map((fixed) => ({fixed, points: points.filter((point) => axis.other(point) === fixed && point.status !== 'missing')}))
    .filter((sweep) => distinct(sweep.points.map(axis.size)).length > 1)
    .sort((a, b) => b.points.length - a.points.length);
}

function grid(axis, sweep) {
  const sizes = distinct(sweep.points.map(axis.size));
  const rows = usedStrategies
    .map((strategy) => ({strategy, points: sizes.map((size) => sweep.points.find((p) => p.strategy === strategy.name && axis.size(p) === size))}))
    .filter((row) => row.points.some(Boolean));
  return {sizes, rows};
}

// A height that shows what was measured, the limit unless it is far above, and as much of what did not fit as leaves
// that readable.
function memoryTop(shown) {
  const ran = Math.max(0, ...shown.filter(isDone).map(peakBytes));
  const planned = Math.max(0, ...shown.filter(isOut).map((point) => point.planned?.device ?? 0));
  const measured = Math.max(ran, planned > 0 || cap < 4 * ran ? cap : 0);
  return measured === 0 ? planned : Math.min(Math.max(measured, planned) * 1.04, measured * 1.5);
}

const limitOptions = () => (cap ? {value: cap, text: `limit ${formatBytes(cap)}`} : {});

function sweepTooltip(state, text) {
  const point = (item) => state().rows[item.datasetIndex]?.points[item.dataIndex];
  return {
    mode: 'index', intersect: false,
    filter: (item) => Boolean(point(item)),
    callbacks: {
      title: (items) => (items.length ? sizeText(point(items[0])) : ''),
      label: (item) => `${strategyTitle(point(item).strategy)}: ${text(point(item))}`,
    },
  };
}

const speedWords = (point) => (isDone(point) ? `${formatRate(rate(point).median)} tokens/s (${formatRate(rate(point).q20)} to ${formatRate(rate(point).q80)})` : whyText(point));
function memoryWords(point) {
  if (isDone(point)) return formatBytes(peakBytes(point));
  return isOut(point) && point.planned ? `out of memory: needs ${formatBytes(point.planned.device)}` : whyText(point);
}

// The settings of the two pairs of charts; what differs is the dataset and the x axis.
function speedOptions(state, x) {
  const fastest = Math.max(0, ...state().rows.flatMap((row) => row.points.filter((point) => point && isDone(point)).map((point) => rate(point).q80)));
  return {
    interaction: {mode: 'index', intersect: false},
    scales: {x, y: {beginAtZero: true, suggestedMax: fastest, grace: '6%', ticks: {maxTicksLimit: 7, includeBounds: false, callback: (value) => value.toLocaleString('en-US')}}},
    plugins: {tooltip: sweepTooltip(state, speedWords)},
  };
}
function memoryOptions(state, x) {
  const top = memoryTop(state().rows.flatMap((row) => row.points.filter(Boolean)));
  const axis = bytesAxis(top);
  return {
    interaction: {mode: 'index', intersect: false},
    scales: {x, y: {beginAtZero: true, max: top, ticks: {stepSize: axis.stepSize, includeBounds: false, callback: axis.format}}},
    plugins: {limit: limitOptions(), tooltip: sweepTooltip(state, memoryWords)},
  };
}

function speedBars({rows}) {
  return rows.map(({strategy, points: row}) => ({
    label: strategyTitle(strategy.name),
    data: row.map((point) => (point && isDone(point) ? rate(point).median : null)),
    spread: row.map((point) => (point && isDone(point) ? [rate(point).q20, rate(point).q80] : null)),
    marks: row.map((point) => (point && isOut(point) ? 'out of memory' : null)),
    backgroundColor: colourOfStrategy(strategyPlace(strategy.name)),
  }));
}
function memoryBars({rows}) {
  return rows.map(({strategy, points: row}) => {
    const colour = colourOfStrategy(strategyPlace(strategy.name)), stripes = hatched(colour);
    return {
      label: strategyTitle(strategy.name),
      data: row.map((point) => (!point ? null : isDone(point) ? peakBytes(point) : isOut(point) ? point.planned?.device ?? null : null)),
      marks: row.map((point) => (point && isOut(point) ? (point.planned ? `needs ${formatBytes(point.planned.device)}` : 'out of memory') : null)),
      colour, backgroundColor: row.map((point) => (point && isOut(point) ? stripes : colour)),
    };
  });
}

function sweepRows({rows}, value, unit) {
  return [['strategy', 'batch', 'seq', 'status', unit],
    ...rows.flatMap((row) => row.points.filter(Boolean).map((point) => [point.strategy, batchOf(point), point.seq, point.status, isDone(point) ? value(point) : '']))];
}

function addSweep(key, title, text) {
  const axis = AXES[key], sweeps = sweepsOf(axis);
  if (sweeps.length === 0) return;
  let current = grid(axis, sweeps[0]);
  const state = () => current;
  const x = () => ({grid: {display: false}, title: {text: key === 'batch' ? 'sequences in a step' : 'tokens in a sequence'}});
  const bars = (make, options) => () => ({
    type: 'bar',
    data: {labels: current.sizes, datasets: make(current).map((d) => ({borderRadius: 2, categoryPercentage: 0.82, barPercentage: 0.94, ...d}))},
    options: options(state, x()),
  });
  const speed = figure({name: `${axis.id}-speed`, title: 'Throughput', unit: 'tokens/s', height: 320,
    label: `Throughput over ${axis.word.toLowerCase()} sizes, bars per strategy. The table of results has every value.`,
    settings: bars(speedBars, speedOptions), rows: () => sweepRows(current, (p) => rate(p).median, 'tokens_per_second')});
  const memory = figure({name: `${axis.id}-memory`, title: 'Peak memory', unit: 'of the device', height: 320,
    label: `Peak memory over ${axis.word.toLowerCase()} sizes, bars per strategy. The table of results has every value.`,
    settings: bars(memoryBars, memoryOptions), rows: () => sweepRows(current, peakBytes, 'peak_bytes')});
  const choices = element('div', {class: 'choices'});
  if (sweeps.length > 1) {
    choices.append(choice('At', sweeps.map((sweep, i) => [i, axis.fixed(sweep.fixed)]), 0, (i) => {
      current = grid(axis, sweeps[i]);
      speed.draw();
      memory.draw();
    }));
  }
  const at = sweeps.length === 1 ? ` At ${axis.fixed(sweeps[0].fixed)}.` : '';
  section(axis.id, title, lead(text + at), sweepLegend(sweeps.flatMap((sweep) => sweep.points), true), choices, element('div', {class: 'figures'}, speed.root, memory.root));
  drawSoon([speed, memory]);
}

function sweepLegend(shown, bars) {
  return legend(() => [
    ...usedStrategies.filter((s) => shown.some((p) => p.strategy === s.name)).map((s) => ({text: strategyTitle(s.name), colour: colourOfStrategy(strategyPlace(s.name))})),
    ...(shown.some(isOut) ? [{text: bars ? 'out of memory; striped: what its plan needs' : 'out of memory; dashed: what its plan needs', kind: 'cross'}] : []),
  ]);
}

// The same as lines over a true axis: the slope is what one more sequence or token costs.
function addScaling() {
  const kinds = ['batch', 'seq'].flatMap((key) => sweepsOf(AXES[key]).map((sweep) => ({axis: AXES[key], key, sweep})));
  if (kinds.length === 0) return;
  let kind = kinds[0], current = grid(kind.axis, kind.sweep);
  const state = () => current;
  const x = () => ({type: 'linear', beginAtZero: true, ticks: {maxTicksLimit: 8, precision: 0, callback: (value) => value.toLocaleString('en-US')},
    title: {text: kind.key === 'batch' ? 'sequences in a step' : 'tokens in a sequence'}});
  const lines = (value, options) => () => {
    const chosen = options(state, x());
    return {
      type: 'line',
      data: {labels: current.sizes, datasets: current.rows.map(({strategy, points: row}) => {
        const colour = colourOfStrategy(strategyPlace(strategy.name));
        return {
          label: strategyTitle(strategy.name), data: row.map((point, i) => ({x: current.sizes[i], y: point ? value(point) : null})),
          borderColor: colour, backgroundColor: colour, borderWidth: 2.2, spanGaps: true, clip: {left: 8, right: 8, bottom: 8, top: 0},
          pointRadius: row.map((point) => (point && isOut(point) ? 5 : 3.2)),
          pointStyle: row.map((point) => (point && isOut(point) ? 'crossRot' : 'circle')),
          pointBorderColor: row.map((point) => (point && isOut(point) ? ink('alarm') : colour)),
          pointBorderWidth: row.map((point) => (point && isOut(point) ? 2.4 : 1)),
          segment: {borderDash: (at) => (row[at.p1DataIndex] && isOut(row[at.p1DataIndex]) ? [3, 4] : undefined)},
        };
      })},
      options: chosen,
    };
  };
  const speed = figure({name: 'scaling-speed', title: 'Throughput', unit: 'tokens/s', settings: lines((p) => (isDone(p) ? rate(p).median : null), speedOptions),
    rows: () => sweepRows(current, (p) => rate(p).median, 'tokens_per_second')});
  const memory = figure({name: 'scaling-memory', title: 'Peak memory', unit: 'of the device',
    settings: lines((p) => (isDone(p) ? peakBytes(p) : p.planned?.device ?? null), memoryOptions), rows: () => sweepRows(current, peakBytes, 'peak_bytes')});
  const slopes = element('p', {class: 'lead'});
  const say = () => slopes.replaceChildren(...slopeWords(kind, current));
  say();
  const choices = element('div', {class: 'choices'});
  if (kinds.length > 1) {
    choices.append(choice('Over', kinds.map((k, i) => [i, `${k.key === 'batch' ? 'batch sizes' : 'sequence lengths'}, at ${k.axis.fixed(k.sweep.fixed)}`]), 0, (i) => {
      kind = kinds[i];
      current = grid(kind.axis, kind.sweep);
      say();
      speed.draw();
      memory.draw();
    }));
  }
  section('scaling', 'How it scales', slopes, sweepLegend(points, false), choices, element('div', {class: 'figures'}, speed.root, memory.root));
  drawSoon([speed, memory]);
}

// What one more costs, by the plans of the two largest sizes of each strategy.
function slopeWords(kind, {rows, sizes}) {
  const costs = rows.flatMap((row) => {
    const known = row.points.map((point, i) => ({size: sizes[i], bytes: point && (isDone(point) ? peakBytes(point) : point.planned?.device)})).filter((k) => k.bytes);
    if (known.length < 2) return [];
    const [a, b] = known.slice(-2);
    return [{title: strategyTitle(row.strategy.name), bytes: (b.bytes - a.bytes) / (b.size - a.size)}];
  });
  if (costs.length === 0) return [''];
  const what = kind.key === 'batch' ? 'One more sequence in the batch' : 'A thousand more tokens in a sequence';
  const factor = kind.key === 'batch' ? 1 : 1000;
  return [`${what} takes ${costs.map((c) => `${c.bytes > 0 ? formatBytes(c.bytes * factor) : 'nothing'} (${c.title})`).join(', ')}.`];
}

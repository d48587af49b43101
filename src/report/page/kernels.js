// Each op fused and unfused, beside the machine's limit.

function addKernels() {
  const groups = new Map();
  for (const row of data.kernels ?? []) {
    const key = `${row.op}\n${row.shape}\n${row.dtype}`;
    const group = groups.get(key) ?? {op: row.op, shape: row.shape, dtype: row.dtype};
    group[row.provider === 'tigon-unfused' ? 'unfused' : 'fused'] = row;
    groups.set(key, group);
  }
  const rows = [...groups.values()].filter((group) => group.fused || group.unfused);
  if (rows.length === 0) return;
  const floor = (group) => (group.fused ?? group.unfused).floor_ms || null;
  const withFloor = rows.filter(floor);
  const forms = [['unfused', 'unfused', 0], ['fused', 'fused', 1]];
  const bars = (shown, value, words, options) => () => ({
    type: 'bar',
    data: {labels: shown.map((group) => (narrow() ? [...wrapped(group.op.replaceAll('_', ' '), 14), group.dtype] : [group.op.replaceAll('_', ' '), `${group.shape} ${group.dtype}`])),
      datasets: forms.map(([form, label, place]) => ({label, data: shown.map((group) => (group[form] ? value(group, group[form]) : null)), words: shown.map((group) => (group[form] ? words(value(group, group[form])) : null)), backgroundColor: colourOfStrategy(place), borderRadius: 2, barPercentage: 0.9, categoryPercentage: 0.78}))},
    options: {indexAxis: 'y', interaction: {mode: 'index', axis: 'y', intersect: false}, layout: {padding: {right: 60}}, ...options()},
  });
  const label = (shown, text) => (item) => {
    const row = shown[item.dataIndex][item.dataset.label];
    return row ? `${item.dataset.label}: ${text(row, shown[item.dataIndex])}` : '';
  };
  const y = () => ({grid: {display: false}, ticks: {color: ink('ink'), font: {size: 11.5}, autoSkip: false, crossAlign: 'far'}});
  const speed = figure({name: 'kernel-time', title: 'Time over the floor', unit: '1 × is the machine’s limit', height: 60 + 54 * withFloor.length,
    settings: bars(withFloor, (group, row) => row.full_ms / floor(group), (ratio) => `${three(ratio)} ×`, () => ({
      scales: {x: {beginAtZero: true, ticks: {callback: (value) => `${value} ×`}}, y: y()},
      plugins: {limit: {value: 1, text: ''}, tooltip: {callbacks: {label: label(withFloor, (row, group) => `${formatSeconds(row.full_ms / 1e3)}, ${three(row.full_ms / floor(group))} × the floor`)}}},
    })),
    rows: () => [['op', 'shape', 'dtype', 'floor_ms', 'unfused_ms', 'fused_ms'], ...rows.map((g) => [g.op, g.shape, g.dtype, floor(g), g.unfused?.full_ms, g.fused?.full_ms])]});
  const withPeak = rows.filter((group) => (group.fused ?? group.unfused).peak_bytes !== undefined);
  const most = Math.max(1, ...withPeak.flatMap((g) => [g.fused?.peak_bytes ?? 0, g.unfused?.peak_bytes ?? 0])), axis = bytesAxis(most);
  const memory = figure({name: 'kernel-memory', title: 'Peak memory', unit: 'beyond the inputs', height: 60 + 54 * withPeak.length,
    settings: bars(withPeak, (_, row) => row.peak_bytes, formatBytes, () => ({
      scales: {x: {beginAtZero: true, ticks: {stepSize: axis.stepSize, includeBounds: false, maxRotation: 0, autoSkipPadding: 12, callback: axis.format}}, y: y()},
      plugins: {tooltip: {callbacks: {label: label(withPeak, (row) => formatBytes(row.peak_bytes))}}},
    })),
    rows: () => [['op', 'shape', 'dtype', 'unfused_bytes', 'fused_bytes'], ...rows.map((g) => [g.op, g.shape, g.dtype, g.unfused?.peak_bytes, g.fused?.peak_bytes])]});
  const shown = [...(withFloor.length ? [speed] : []), ...(withPeak.length ? [memory] : [])];
  const ms = (row) => (row ? formatSeconds(row.full_ms / 1e3) : '');
  const columns = [
    {title: 'Op', key: 'op', value: (g) => g.op}, {title: 'Shape', key: 'shape', value: (g) => g.shape}, {title: 'Type', key: 'dtype', value: (g) => g.dtype},
    {title: 'floor', key: 'floor_ms', number: true, value: floor, text: (g) => (floor(g) ? formatSeconds(floor(g) / 1e3) : '')},
    {title: 'fused', key: 'fused_ms', number: true, value: (g) => g.fused?.full_ms, text: (g) => ms(g.fused)},
    {title: 'unfused', key: 'unfused_ms', number: true, value: (g) => g.unfused?.full_ms, text: (g) => ms(g.unfused)},
    {title: 'as fast', key: 'ratio', number: true, value: (g) => (g.fused && g.unfused ? g.unfused.full_ms / g.fused.full_ms : ''), text: (g) => (g.fused && g.unfused ? `${three(g.unfused.full_ms / g.fused.full_ms)} ×` : '')},
    {title: 'memory fused', key: 'fused_bytes', number: true, value: (g) => g.fused?.peak_bytes, text: (g) => (g.fused?.peak_bytes === undefined ? '' : formatBytes(g.fused.peak_bytes))},
    {title: 'unfused', key: 'unfused_bytes', number: true, value: (g) => g.unfused?.peak_bytes, text: (g) => (g.unfused?.peak_bytes === undefined ? '' : formatBytes(g.unfused.peak_bytes))},
  ];
  section('kernels', 'Op by op', lead('Medians of forward and backward together, fused and as the chain of steps that an eager framework runs.'),
    legend(() => forms.map(([, text, place]) => ({text, colour: colourOfStrategy(place)}))),
    element('div', {class: shown.length > 1 ? 'figures' : 'figures one'}, ...shown.map((f) => f.root)),
    element('details', {}, element('summary', {}, 'Every op as a table'), table('Ops', columns, rows, 'kernel-table')));
  drawSoon(shown);
}

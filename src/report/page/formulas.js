// The study's formulas beside the bytes that the plan has of the same kind.

const FORMULAS = [
  {key: 'static_bytes', title: 'Weights, gradients, states', formula: 'bytes a parameter × P', classes: ['weights', 'gradients', 'states', 'optimizer states']},
  {key: 'checkpoints', title: 'Layer inputs', formula: 'batch · seq · hidden · bytes · layers', classes: ['layer inputs']},
  {key: 'logits', title: 'Logits', formula: 'batch · seq · vocab · 4, once', classes: ['loss']},
];

function addFormulas() {
  const able = points.filter((point) => point.formulas && point.by_class);
  if (able.length === 0) return;
  const pair = (data.pair ?? []).map(pointById).filter((point) => able.includes(point));
  let chosen = [...new Set(pair.length ? pair : able.slice(0, 2))];
  // What a class holds at the peak, and over the step at most.
  const held = (point, classes) => {
    let most = classes.reduce((sum, name) => sum + (point.by_class[name] ?? 0), 0);
    if (point.memory) {
      const l = lineOf(point), places = classes.map((name) => l.memory.classes.indexOf(name)).filter((place) => place >= 0);
      for (let at = 0; at < l.times.length; ++at) most = Math.max(most, places.reduce((sum, place) => sum + l.levels[place][at], 0));
    }
    return most;
  };
  const bars = () => [
    {label: 'by formula', colour: ink('faint'), value: (row) => chosen[0].formulas[row.key]},
    ...chosen.map((point) => ({label: pointTitle(point), colour: colourOfStrategy(Math.max(0, strategyPlace(point.strategy))), value: (row) => held(point, row.classes)})),
  ];
  const settings = () => {
    const all = bars(), axis = bytesAxis(Math.max(...all.flatMap((bar) => FORMULAS.map(bar.value))));
    return {
      type: 'bar',
      data: {labels: FORMULAS.map((row) => (narrow() ? row.title : [row.title, row.formula])),
        datasets: all.map((bar) => ({label: bar.label, data: FORMULAS.map(bar.value), words: FORMULAS.map((row) => formatBytes(bar.value(row))), backgroundColor: bar.colour, borderRadius: 2, barPercentage: 0.92, categoryPercentage: 0.8, minBarLength: 2}))},
      options: {
        indexAxis: 'y', interaction: {mode: 'index', axis: 'y', intersect: false}, layout: {padding: {right: 64}},
        scales: {x: {beginAtZero: true, ticks: {stepSize: axis.stepSize, includeBounds: false, maxRotation: 0, callback: axis.format}}, y: {grid: {display: false}, ticks: {color: ink('ink'), crossAlign: 'far'}}},
        plugins: {tooltip: {callbacks: {title: (items) => FORMULAS[items[0].dataIndex].title, label: (item) => `${item.dataset.label}: ${formatBytes(item.raw)}`}}},
      },
    };
  };
  const made = figure({name: 'formulas', title: 'By formula, and in the plan', height: 120 + 70 * (1 + chosen.length), settings,
    rows: () => [['what', 'formula', ...bars().map((bar) => bar.label)], ...FORMULAS.map((row) => [row.title, row.formula, ...bars().map((bar) => bar.value(row))])]});
  const chunk = chosen.find((point) => point.formulas.chunk_logits)?.formulas;
  section('formulas', 'Formulas beside bytes', lead(`The most that each kind takes within the step. An eager framework holds the logits about three times over; a chunk of them, as a fused loss takes, is ${formatBytes(chunk?.chunk_logits ?? 0)} by the formula.${chunk?.static_mixed_16p ? ` Mixed precision with f32 master weights would keep 16 bytes a parameter, ${formatBytes(chunk.static_mixed_16p)}.` : ''}`),
    legend(() => bars().map((bar) => ({text: bar.label, colour: bar.colour}))), element('div', {class: 'figures one'}, made.root));
  drawSoon([made]);
}

// Where a step's time goes, beside the least it could take on this machine.

function addTimes() {
  const able = points.filter((point) => point.times?.rows.length > 0);
  if (able.length === 0) return;
  // All strategies at the size whose memory is shown; else at the one that the most of them have.
  const size = (point) => `${batchOf(point)} ${point.seq}`;
  const groups = new Map();
  for (const point of able) groups.set(size(point), [...(groups.get(size(point)) ?? []), point]);
  const shown = pointById(data.pair?.[0]);
  const chosen = (groups.get(shown && size(shown)) ?? [...groups.values()].sort((a, b) => b.length - a.length)[0]).slice(0, 4);

  const byName = (point) => {
    const sums = new Map();
    for (const row of point.times.rows) {
      const sum = sums.get(row.name) ?? {name: row.name, calls: 0, seconds: 0, floor: 0, phases: {__proto__: null}};
      sum.calls += row.calls ?? 0;
      sum.seconds += row.seconds;
      sum.floor += row.floor_seconds ?? 0;
      sum.phases[row.phase] = (sum.phases[row.phase] ?? 0) + row.seconds;
      sums.set(row.name, sum);
    }
    return [...sums.values()].sort((a, b) => b.seconds - a.seconds);
  };
  const partsNow = () => {
    const sums = new Map();
    for (const point of chosen) for (const row of byName(point)) sums.set(row.name, (sums.get(row.name) ?? 0) + row.seconds);
    const names = [...sums.entries()].sort((a, b) => b[1] - a[1]).map(([name]) => name);
    return names.length > 8 ? [...names.slice(0, 7), null] : names;  // null: all the others
  };
  const settings = () => {
    const parts = partsNow(), bars = chosen.flatMap((point) => [{point, floor: false}, {point, floor: true}]);
    const longest = Math.max(...chosen.map((point) => point.times.seconds));
    return {
      type: 'bar',
      data: {
        labels: bars.map(({point, floor}) => (floor ? 'its floor' : barLabel(point))),
        datasets: parts.map((part, place) => ({
          label: part ?? 'everything else',
          data: bars.map(({point, floor}) => byName(point).filter((row) => (part === null ? !parts.includes(row.name) : row.name === part))
            .reduce((sum, row) => sum + (floor ? row.floor : row.seconds), 0)),
          backgroundColor: part === null ? ink('faint') : colourOfPart(place), stack: 'time', barPercentage: 0.9, categoryPercentage: 0.86,
          borderColor: ink('paper'), borderWidth: {right: 1},
        })),
      },
      options: {
        indexAxis: 'y', interaction: {mode: 'nearest', axis: 'xy', intersect: true},
        scales: {
          x: {stacked: true, max: longest, beginAtZero: true, ticks: {maxTicksLimit: 8, includeBounds: false, callback: (value) => formatSeconds(value)}},
          y: {stacked: true, grid: {display: false}, ticks: {color: ink('ink'), crossAlign: 'far'}},
        },
        plugins: {tooltip: {callbacks: {
          title: (items) => bars[items[0].dataIndex] && pointTitle(bars[items[0].dataIndex].point),
          label: (item) => `${item.dataset.label}: ${formatSeconds(item.raw)}${bars[item.dataIndex].floor ? ' at least' : ''}`,
          footer: (items) => {
            const {point, floor} = bars[items[0].dataIndex], row = byName(point).find((r) => r.name === items[0].dataset.label);
            return floor || !row ? [] : Object.entries(row.phases).map(([phase, seconds]) => `  ${phase} ${formatSeconds(seconds)}`);
          },
        }}},
      },
    };
  };
  const rows = () => [['id', 'phase', 'name', 'calls', 'seconds', 'floor_seconds'],
    ...chosen.flatMap((point) => point.times.rows.map((row) => [point.id, row.phase, row.name, row.calls, row.seconds, row.floor_seconds]))];
  const made = figure({name: 'step-time', title: 'A step, stage by stage', unit: '', height: 64 + 88 * chosen.length, settings, rows,
    label: 'Time of a step by stage, and the floor of each stage. The table below has every value.'});
  const list = legend(() => partsNow().map((part, place) => ({text: part ?? 'everything else', colour: part === null ? ink('faint') : colourOfPart(place)})));

  const columns = [
    {title: 'Stage', key: 'name', value: (r) => r.name, text: (r) => r.name},
    ...[...new Set(able.flatMap((point) => point.times.rows.map((row) => row.phase)))].map((phase) => ({title: phase, key: phase, number: true, value: (r) => r.phases[phase] ?? '', text: (r) => (r.phases[phase] === undefined ? '' : formatSeconds(r.phases[phase]))})),
    {title: 'in all', key: 'seconds', number: true, value: (r) => r.seconds, text: (r) => formatSeconds(r.seconds)},
    {title: 'floor', key: 'floor_seconds', number: true, value: (r) => r.floor || '', text: (r) => (r.floor ? formatSeconds(r.floor) : '')},
    {title: 'of the floor', key: 'ratio', number: true, value: (r) => (r.floor ? r.seconds / r.floor : ''), text: (r) => (r.floor ? `${three(r.seconds / r.floor)} ×` : '')},
  ];
  const tables = element('div');
  const fill = () => tables.replaceChildren(...chosen.map((point) => table(pointTitle(point), columns, byName(point))));
  fill();
  const choices = element('div', {class: 'choices'});
  if (able.length > chosen.length) {
    chosen.forEach((point, i) => choices.append(choice(['First', 'Second', 'Third', 'Fourth'][i], able.map((p) => [p.id, pointTitle(p)]), point.id, (id) => {
      chosen[i] = pointById(id);
      fill();
      made.draw();
      list.paint();
    })));
  }
  section('time', 'Where a step’s time goes', lead('One recorded step. The floor is the least work of each stage at the machine’s measured rates: products at the rate of a large one, everything else at the speed of a copy.'),
    list, choices, element('div', {class: 'figures one'}, made.root), element('details', {}, element('summary', {}, 'Every stage as a table'), tables));
  drawSoon([made]);
}

// A point at the side of its bar; on a phone in short lines, which leave the bar some room.
const barLabel = (point) => [...(narrow() ? wrapped(strategyTitle(point.strategy), 18) : [strategyTitle(point.strategy)]), sizeText(point)];

// What offloaded points waited for.
function addWaits() {
  const able = points.filter((point) => point.measured?.waits);
  if (able.length === 0) return;
  const kinds = [['compute', 'computing', 1], ['copies', 'waiting for copies', 2], ['update', 'waiting for the update', 0]];
  const settings = () => ({
    type: 'bar',
    data: {
      labels: able.map(barLabel),
      datasets: kinds.map(([key, label, place]) => ({label, data: able.map((point) => point.measured.waits[key]), backgroundColor: colourOfStrategy(place), stack: 'share', barPercentage: 0.86, categoryPercentage: 0.8})),
    },
    options: {
      indexAxis: 'y', interaction: {mode: 'index', axis: 'y', intersect: false},
      scales: {x: {stacked: true, min: 0, max: 1, ticks: {stepSize: 0.25, callback: (value) => `${Math.round(value * 100)} %`}}, y: {stacked: true, grid: {display: false}, ticks: {color: ink('ink'), crossAlign: 'far'}}},
      plugins: {tooltip: {callbacks: {label: (item) => `${item.dataset.label}: ${formatShare(item.raw)}`}}},
    },
  });
  const made = figure({name: 'waits', title: 'Shares of a step', height: 46 + (narrow() ? 58 : 46) * able.length, settings,
    rows: () => [['id', ...kinds.map(([key]) => key)], ...able.map((point) => [point.id, ...kinds.map(([key]) => point.measured.waits[key])])]});
  section('waits', 'What offloaded steps waited for', lead('Weights, gradients and states come and go while the device computes. Where they came too late, it waited.'),
    legend(() => kinds.map(([, text, place]) => ({text, colour: colourOfStrategy(place)}))),
    element('div', {class: 'figures one'}, made.root));
  drawSoon([made]);
}

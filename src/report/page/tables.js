// Every point in numbers.

function addTables() {
  if (points.length === 0) return;
  const measured = (point, key) => point.measured?.[key];
  const bytes = (title, key, value) => ({title, key, number: true, value, text: (point) => (value(point) === undefined ? '' : formatBytes(value(point)))});
  const planned = (key) => (point) => point.planned?.[key];
  const some = (value) => points.some((point) => value(point));
  const host = (point) => (point.planned ? point.planned.pinned + point.planned.host : undefined);
  const isPlan = data.kind === 'plan';
  const columns = [
    {title: isPlan ? 'Plan' : 'Strategy', key: 'strategy', value: (p) => p.strategy, text: (p) => (isPlan ? pointTitle(p) : strategyTitle(p.strategy))},
    {title: 'Batch', key: 'batch', number: true, value: batchOf, text: batchText},
    {title: 'Sequence', key: 'seq', number: true, value: (p) => p.seq},
    ...(isPlan ? [] : [
      {title: 'Tokens/s', key: 'tokens_per_second', number: true, value: (p) => p.measured?.tokens_per_second.median, text: (p) => (isDone(p) ? formatRate(rate(p).median) : isOut(p) ? element('span', {class: 'out'}, 'out of memory') : element('span', {}, p.status))},
      {title: '20 to 80 %', key: 'tokens_per_second_quantiles', number: true, text: (p) => (isDone(p) ? `${formatRate(rate(p).q20)} to ${formatRate(rate(p).q80)}` : '')},
      {title: 'Step', key: 'step_seconds', number: true, value: (p) => p.measured?.seconds.median, text: (p) => (isDone(p) ? formatSeconds(p.measured.seconds.median) : '')},
      bytes('Peak', 'peak_bytes', (p) => (isDone(p) ? peakBytes(p) : undefined)),
    ]),
    bytes('Planned', 'planned_device_bytes', planned('device')),
    ...(some((p) => measured(p, 'beyond_plan_bytes')) ? [bytes('Beyond it', 'beyond_plan_bytes', (p) => measured(p, 'beyond_plan_bytes'))] : []),
    ...(some(host) ? [bytes('Host', 'planned_host_bytes', host)] : []),
    ...(some(planned('disk')) ? [bytes('Disk', 'planned_disk_bytes', planned('disk'))] : []),
    ...(some((p) => measured(p, 'loss')) ? [{title: 'Loss', key: 'loss', number: true, value: (p) => measured(p, 'loss'), text: (p) => measured(p, 'loss')?.toFixed(4) ?? ''}] : []),
    ...(some((p) => p.files?.length) ? [{title: 'Files', key: 'files', text: (p) => {
      const links = element('span');
      for (const file of p.files ?? []) {
        const name = file.endsWith('.pickle') ? 'snapshot' : file.endsWith('.gz') ? 'trace' : 'log';
        links.append(links.childNodes.length ? ', ' : '', element('a', {href: file.split('/').map(encodeURIComponent).join('/')}, name));
      }
      return links;
    }}] : []),
  ];
  const save = element('button', {type: 'button'}, 'Download as CSV');
  save.addEventListener('click', () => saveCsv(isPlan ? 'plans' : 'results', tableRows([{key: 'id', value: (p) => p.id}, ...columns, {key: 'status', value: (p) => p.status}, {key: 'why', value: (p) => p.why}].filter((c) => c.value), points)));

  const kinds = [...new Set(points.flatMap((point) => Object.keys(point.by_class ?? {})))];
  const classes = [columns[0], columns[1], columns[2], ...kinds.map((kind) => bytes(kind, kind, (p) => p.by_class?.[kind])), bytes('in all', 'planned', planned('device'))];
  const withClasses = points.filter((point) => point.by_class);
  const alive = points.filter((point) => point.alive_at_peak?.length);
  const aliveColumns = [
    {title: 'Tensor', key: 'name', value: (r) => r.name}, {title: 'Class', key: 'class', value: (r) => r.class},
    {title: 'Blocks', key: 'count', number: true, value: (r) => r.count}, {title: 'Together', key: 'bytes', number: true, value: (r) => r.bytes, text: (r) => formatBytes(r.bytes)},
  ];
  const aliveTable = element('div');
  const showAlive = (point) => aliveTable.replaceChildren(table(pointTitle(point), aliveColumns, point.alive_at_peak.slice(0, 40)));
  const firstAlive = alive.find((point) => point.id === data.pair?.[0]) ?? alive[0];
  if (firstAlive) showAlive(firstAlive);
  const commands = points.filter((point) => point.command);
  const whys = points.filter((point) => point.why && !isDone(point));
  section('results', isPlan ? 'In numbers' : 'Results in numbers',
    table(isPlan ? 'Plans' : 'Points', columns, points, 'results-table'), element('p', {}, save),
    withClasses.length ? element('details', isPlan ? {open: ''} : {}, element('summary', {}, 'The device at its peak, by class'), table('At the peak', classes, withClasses, 'class-table')) : null,
    firstAlive ? element('details', isPlan ? {open: ''} : {}, element('summary', {}, 'Who is alive at the peak'),
      alive.length > 1 ? element('div', {class: 'choices'}, choice('Point', alive.map((p) => [p.id, pointTitle(p)]), firstAlive.id, (id) => showAlive(pointById(id)))) : null, aliveTable) : null,
    whys.length ? element('details', {}, element('summary', {}, 'Why points did not run'), table('Points that did not run',
      [columns[0], columns[1], columns[2], {title: 'Why', key: 'why', wide: true, value: (p) => p.why, text: (p) => `${p.why}${isOut(p) ? (p.proved ? ' (run, and failed)' : ' (by the plan; not run)') : ''}`}], whys)) : null,
    commands.length ? element('details', {}, element('summary', {}, isPlan ? 'The commands' : 'The commands that run each point alone'), element('pre', {}, commands.map((point) => `# ${point.id}\n${point.command}`).join('\n'))) : null);
}

// The page from top to bottom.

function addHead() {
  const machine = study.machine ?? {}, model = study.model ?? {};
  const when = study.created ? new Date(study.created) : null;
  document.getElementById('overline').textContent = [data.kind === 'plan' ? 'A plan, before any run' : 'A study of memory and time',
    when && !Number.isNaN(+when) ? when.toLocaleDateString('en-GB', {day: 'numeric', month: 'long', year: 'numeric'}) : null].filter(Boolean).join(', ');
  for (const sentence of data.headline ?? []) document.getElementById('headline').append(element('p', {}, sentence));

  const onCpu = !machine.device || machine.device === 'cpu';
  const device = (onCpu ? machine.cpu : machine.device_name) || machine.device;
  const finished = points.filter((point) => point.status !== 'missing').length;
  const facts = [
    ['Model', model.name, [model.parameters && `${formatCount(model.parameters)} parameters`, model.layers && `${model.layers} layers`, model.vocab && `vocabulary ${model.vocab.toLocaleString('en-US')}`]],
    ['Machine', device, [machine.device_memory_bytes ? formatBytes(machine.device_memory_bytes) : null, !onCpu && machine.cpu, machine.threads && `${machine.threads} threads`, machine.memory_bytes && `${formatBytes(machine.memory_bytes)} of host memory`]],
    ['Limit', cap ? formatBytes(cap) : null, [data.kind === 'plan' ? 'of device memory' : 'of device memory, for each point']],
    ['Points', data.kind === 'plan' || points.length === 0 ? null : `${points.filter(isDone).length} ran`, [points.some(isOut) && `${points.filter(isOut).length} out of memory`, finished < points.length && `${points.length - finished} missing`, points.some((p) => p.status === 'failed') && `${points.filter((p) => p.status === 'failed').length} failed`]],
    ['Measured limits', study.rates?.copy_bytes_per_second ? `${formatPerSecond(study.rates.copy_bytes_per_second, 'B/s')} copied` : null, [study.rates?.gemm_flops_per_second && `${formatPerSecond(study.rates.gemm_flops_per_second, 'FLOP/s')} in products`]],
  ];
  for (const [name, value, more] of facts) {
    if (!value) continue;
    const small = more.filter(Boolean).join(', ');
    document.getElementById('facts').append(element('div', {}, element('dt', {}, name), element('dd', {}, value, small ? element('small', {}, small) : null)));
  }
  if (data.notes?.length) {
    const notes = document.getElementById('notes');
    notes.hidden = false;
    notes.append(element('p', {}, data.kind === 'plan' ? 'To know' : 'What is missing here'), element('ul', {}, ...data.notes.map((note) => element('li', {}, note))));
  }
}

function addFoot() {
  document.getElementById('made').textContent = `Made by tigon${study.tigon ? ` ${study.tigon}` : ''}${data.kind === 'plan' ? ' plan --html' : ' report'}. Everything is in this one file.`;
  if (study.command) document.getElementById('made').after(element('pre', {class: 'wrap'}, study.command));
}

function addContents() {
  const short = {batches: 'Batches', sequences: 'Sequences', scaling: 'Scaling', memory: 'Memory', time: 'Time', waits: 'Offloading', formulas: 'Formulas', kernels: 'Ops', results: 'Numbers'};
  for (const part of document.querySelectorAll('#sections > section')) document.getElementById('contents').append(element('a', {href: `#${part.id}`}, short[part.id] ?? part.id));
}

addHead();
addSweep('batch', 'Larger batches', 'How fast each strategy trains, and what it takes, as the batch grows. Bars of speed are medians, with a line from their 20 % to their 80 % quantile.');
addSweep('seq', 'Longer sequences', 'The same as sequences grow.');
addMemory();
addTimes();
addWaits();
addScaling();
addFormulas();
addKernels();
addTables();
addFoot();
addContents();

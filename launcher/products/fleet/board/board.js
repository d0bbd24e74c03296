"use strict";
// Everything from the cluster becomes text by textContent, never HTML.
const WAITS = new Set(["queued", "preempted", "admitted", "starting"]), ENDED = new Set(["succeeded", "failed", "cancelled"]);
const byId = (id) => document.getElementById(id);
let state = null;

function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function bar(used, nominal) {
  const box = element("span", undefined, "bar"), filled = element("span", undefined, used > nominal ? "over" : "");
  filled.style.width = `${nominal ? Math.min(100, 100 * used / nominal) : used ? 100 : 0}%`;
  box.setAttribute("aria-hidden", "true");
  box.append(filled);
  return box;
}

function spark(losses) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg"), path = document.createElementNS(made.namespaceURI, "path");
  const low = Math.min(...losses), high = Math.max(...losses), step = 88 / (losses.length - 1);
  path.setAttribute("d", losses.map((loss, at) => `${at ? "L" : "M"}${(1 + at * step).toFixed(1)} ${(high > low ? 18 - 16 * (loss - low) / (high - low) : 10).toFixed(1)}`).join(""));
  made.setAttribute("viewBox", "0 0 90 20");
  made.setAttribute("class", "spark");
  made.setAttribute("role", "img");
  made.setAttribute("aria-label", `Loss from ${losses[0].toFixed(3)} to ${losses[losses.length - 1].toFixed(3)}`);
  made.append(path);
  return made;
}

function queueRows(queue) {
  const quotas = queue.quotas.length ? queue.quotas : [null];
  return quotas.map((quota, at) => {
    const row = element("tr"), name = element("th", at ? "" : queue.name + (queue.inactive ? ` (${queue.inactive})` : ""), queue.inactive ? "failed" : "");
    name.scope = "row";
    row.append(name, element("td", quota ? quota.flavor : ""));
    const used = element("td");
    if (quota) used.append(bar(quota.used, quota.nominal), `${quota.used} of ${quota.nominal}`);
    row.append(used);
    for (const key of ["borrowed", "lent", "free"]) row.append(element("td", quota ? String(quota[key]) : "", "number"));
    for (const key of ["admitted", "pending"]) row.append(element("td", at ? "" : String(queue[key]), "number"));
    return row;
  });
}

function runRow(run) {
  const row = element("tr"), name = element("th", run.name), loss = element("td"), more = element("td", undefined, "more");
  name.scope = "row";
  row.append(name, element("td", run.team));
  row.append(element("td", run.state + (run.position ? ` #${run.position}` : ""), run.state));
  row.append(element("td", run.machines), element("td", run.step === null ? "" : run.steps ? `${run.step}/${run.steps}` : String(run.step), "number"));
  if (run.losses && run.losses.length > 1) loss.append(spark(run.losses));
  if (run.loss !== null) loss.append(run.loss.toFixed(3));
  row.append(loss, element("td", run.speed ? `${Math.round(100 * run.speed)} %` : "", run.speed && run.speed < 0.9 ? "number slow" : "number"));
  row.append(element("td", run.starts), element("td", run.reason, "why"));
  for (const view of ["explain", "logs", "report"]) {
    const link = element("a", view);
    link.href = `/${view}/${encodeURIComponent(run.kind === "local" ? "-" : run.namespace)}/${encodeURIComponent(run.name)}`;
    link.setAttribute("aria-label", `${view} ${run.name}`);
    more.append(link, " ");
  }
  row.append(more);
  return row;
}

function draw() {
  if (state === null) return;
  const notes = byId("notes"), wanted = byId("filter").value.toLowerCase(), all = byId("shown").value === "all";
  notes.replaceChildren(...state.notes.map((note) => element("p", note)));
  notes.hidden = !state.notes.length;
  byId("queues").hidden = !(state.queues && state.queues.length);
  if (state.queues) byId("queues").querySelector("tbody").replaceChildren(...state.queues.flatMap(queueRows));
  const runs = state.runs.filter((run) => (all || !ENDED.has(run.state)) && [run.name, run.team, run.queue].some((text) => text.toLowerCase().includes(wanted)));
  const rank = (run) => ENDED.has(run.state) ? 2 : WAITS.has(run.state) ? 1 : 0;
  runs.sort((a, b) => rank(a) - rank(b) || (a.position || 0) - (b.position || 0));
  byId("count").textContent = `${runs.length} of ${state.runs.length} runs`;
  byId("runs").querySelector("tbody").replaceChildren(...runs.slice(0, 500).map(runRow));
  if (runs.length > 500) byId("count").textContent += "; the first 500 are shown, use the filter";
}

async function follow() {
  let pause = 5;
  try {
    const answer = await fetch("/state.json", {cache: "no-store"});
    if (!answer.ok) throw new Error(await answer.text());
    const text = await answer.text();
    state = JSON.parse(text);
    pause = state.pause;
    byId("made").textContent = `As of ${new Date(state.made).toLocaleTimeString()}; updated every ${pause} s.`;
    byId("made").className = "quiet";
    draw();
  } catch (error) {
    byId("made").textContent = `The board does not answer, so this is old: ${error.message}`;
    byId("made").className = "warn";
  }
  setTimeout(follow, 1000 * pause);
}

byId("shown").addEventListener("change", draw);
byId("filter").addEventListener("input", draw);
follow();

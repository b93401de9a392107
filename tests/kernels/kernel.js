#!/usr/bin/env node
// A context kernel in JavaScript. `node kernel.js` is right; `node kernel.js --identity-less` has the bug put back:
// a latch is {ref, text}, shown on whatever holds the ref, and a restamp leaves it alone.
"use strict";
const { createHash } = require("node:crypto");
const readline = require("node:readline");

const IDENTITY_LESS = process.argv.includes("--identity-less");
const CAPABILITIES = ["unlatch", "numbering", "replay-report", "unknown-fields", "lone-surrogates"];
const REF = /^m(?:[0-9]{5}|[1-9][0-9]{5,})$/;

const identity = (m) => {
  const fields = JSON.stringify([m.tool_name, m.tool_call_id, m.text]);
  return [m.role, m.kind, createHash("sha256").update(fields).digest("hex")];
};
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
const latchable = (m) => m.kind === "text" || m.kind === "tool-result";
const differs = (found, wanted) =>
  ["role", "kind", "hash"].find((_, i) => found[i] !== wanted[i]) + "-mismatch";
const format = (n) => "m" + String(n).padStart(5, "0");

const applies = (latch, m) => IDENTITY_LESS || (latchable(m) && same(latch.identity, identity(m)));
const shown = (state, m) => state.latches.find((l) => l.ref === state.refs[m.id] && applies(l, m));

// What became of each latch: it shows, or why not, and which message holds its ref.
function replayed(state, history) {
  const [applied, refused] = [[], []];
  for (const l of state.latches) {
    const m = history.find((message) => state.refs[message.id] === l.ref);
    const told = { ref: l.ref, text: l.text, holder: m ? m.id : null };
    if (m && applies(l, m)) applied.push(told);
    else refused.push({ ...told, reason: m ? differs(identity(m), l.identity) : "holder-absent" });
  }
  return { event: "replayed", applied, refused };
}

function drop(state, latch, reason) {
  state.latches = state.latches.filter((l) => l !== latch);
  state.quarantine.push({ ...latch, drop: "d" + ++state.drops, reason });
}

function assign(state, history) {
  for (const m of history) {
    if (state.refs[m.id] !== undefined) continue;
    state.refs[m.id] = format(state.cursor++);
    revive(state, m);
  }
  see(state, history);
}

function revive(state, m) {
  const gone = state.quarantine.filter((d) => d.reason === "gone" && same(d.identity, identity(m)));
  if (gone.length === 0 || new Set(gone.map((d) => d.text)).size > 1) return;
  if (state.latches.some((l) => l.ref === state.refs[m.id])) return;
  const { drop: name, reason, ...latch } = gone[0];
  state.quarantine = state.quarantine.filter((d) => d.drop !== name);
  state.latches.push({ ...latch, ref: state.refs[m.id] });
}

function see(state, history) {
  state.seen = Object.fromEntries(history.map((m) => [m.id, identity(m)]));
}

// Where a latch goes: the id of its message, or the reason why it has none.
function home(state, latch, holders, byId, history) {
  const host = holders[latch.ref];
  const is = (id) => byId[id] !== undefined && same(identity(byId[id]), latch.identity);
  if (is(host)) return { id: host };
  const hosts = new Map(state.latches.filter((l) => same(l.identity, latch.identity)).map((l) => [holders[l.ref], l.text]));
  const twins = Object.keys(state.seen).filter((id) => same(state.seen[id], latch.identity));
  const old = [...new Set([...twins, ...hosts.keys()])];
  const equal = history.map((m) => m.id).filter(is);
  const free = equal.filter((id) => !old.includes(id));
  if (free.length === 0) return { reason: byId[host] ? differs(identity(byId[host]), latch.identity) : "gone" };
  const places = old.filter((id) => !is(id));
  const lost = places.filter((id) => hosts.has(id));
  if (lost.length === 1 && equal.length === 1) return { id: free[0] };
  if (new Set(old.map((id) => hosts.get(id))).size === 1) {
    const rank = lost.indexOf(host);
    return rank < free.length ? { id: free[rank] } : { reason: "gone" };
  }
  return places.length === free.length ? { id: free[places.indexOf(host)] } : { reason: "ambiguous" };
}

function restamp(state, history, op) {
  const before = state.refs;
  const holders = Object.fromEntries(Object.entries(before).map(([id, ref]) => [ref, id]));
  const byId = Object.fromEntries(history.map((m) => [m.id, m]));
  const homes = state.latches.map((l) => [l, IDENTITY_LESS ? null : home(state, l, holders, byId, history)]);
  const given = op.numbering || {};
  state.cursor = Math.max(0, ...Object.values(given).map((ref) => Number(ref.slice(1)))) + 1;
  state.refs = {};
  for (const m of history) state.refs[m.id] = given[m.id] || format(state.cursor++);
  if (IDENTITY_LESS) {
    const used = Object.values(state.refs);
    state.latches = state.latches.filter((l) => used.includes(l.ref));
  } else {
    for (const [latch, { id, reason }] of homes) {
      if (reason) drop(state, latch, reason);
      else latch.ref = state.refs[id];
    }
  }
  see(state, history);
  for (const m of history) if (before[m.id] === undefined) revive(state, m);
  const moved = Object.entries(before).map(([id, ref]) => [ref, state.refs[id] ?? null]);
  return [{ event: "moved", refs: Object.fromEntries(moved) }];
}

function latch(state, m, op) {
  if (!latchable(m)) return [{ event: "refused", reason: "forbidden-kind" }];
  if (state.refs[m.id] === undefined) return [{ event: "refused", reason: "unassigned-ref" }];
  const old = state.latches.find((l) => l.ref === state.refs[m.id]);
  const made = { ref: state.refs[m.id], identity: identity(m), text: op.text };
  if (old && same(old, made)) return [];
  if (old) drop(state, old, same(old.identity, made.identity) ? "superseded" : differs(made.identity, old.identity));
  state.latches.push(made);
  return [];
}

function malformed(history, op) {
  const fields = { append: ["ids"], latch: ["id", "text"], unlatch: ["id"], restamp: [], resend: [], edit: ["id"], reload: [] }[op.op];
  const optional = { append: ["protected"], latch: ["view"], restamp: ["numbering", "crash"] }[op.op] || [];
  const ids = history.map((m) => m.id);
  if (!fields || new Set(ids).size < ids.length) return true;
  if (Object.keys(op).some((key) => key !== "op" && !fields.includes(key) && !optional.includes(key))) return true;
  if (fields.some((key) => (key === "ids" ? !Array.isArray(op.ids) : typeof op[key] !== "string"))) return true;
  if ([...(op.ids || []), ...("id" in op ? [op.id] : [])].some((id) => !ids.includes(id))) return true;
  if (op.protected?.length || (op.view ?? null) !== null || op.crash) return true; // not declared
  if (op.numbering === undefined || op.numbering === null) return false;
  const refs = Object.values(op.numbering);
  return Array.isArray(op.numbering) || refs.some((ref) => !REF.test(ref)) || new Set(refs).size < refs.length;
}

function change(state, history, op) {
  const m = history.find((message) => message.id === op.id);
  if (malformed(history, op)) return [{ event: "refused", reason: "malformed" }];
  if (op.op === "append") assign(state, history);
  if (op.op === "edit") see(state, history);
  if (op.op === "latch") return latch(state, m, op);
  if (op.op === "unlatch" && shown(state, m)) drop(state, shown(state, m), "cleared");
  return op.op === "restamp" ? restamp(state, history, op) : [];
}

function step({ state: given, history, op }) {
  const state = given ?? { refs: {}, cursor: 1, seen: {}, latches: [], quarantine: [], drops: 0 };
  const events = change(state, history, op);
  const view = history.map((m) => ({ id: m.id, text: (shown(state, m) || m).text }));
  const latches = state.latches.map(({ ref, text }) => ({ ref, text }));
  const quarantine = state.quarantine.map(({ drop: name, text, reason }) => ({ drop: name, text, reason }));
  const report = { event: "report", refs: state.refs, latches, quarantine };
  return { state, view, events: [...events, replayed(state, history), report] };
}

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const request = JSON.parse(line);
  const reply = request.step
    ? step(request.step)
    : request.hello
      ? { hello: { protocol: 1, name: "kernel.js", capabilities: CAPABILITIES } }
      : { bye: true };
  process.stdout.write(JSON.stringify({ id: request.id, ...reply }) + "\n");
});

// Enhancements: every page works without them. Text of records enters the page only as textContent.
"use strict";

const byId = (id) => document.getElementById(id);
const places = { o: "/", t: "/topics", g: "/groups", d: "/dead-letters", n: "/nodes", a: "/access", s: "/schemas", c: "/connectors", x: "/transactions" };

// -- theme --------------------------------------------------------------------------------------------------------

function switchTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  try { localStorage.setItem("theme", root.dataset.theme); } catch { /* only this page changes */ }
}

// -- copy ---------------------------------------------------------------------------------------------------------

async function copy(button) {
  let scope = button.parentElement;
  let source = null;
  while (scope && !source) {
    source = scope.querySelector("[data-copy-source]") ||
      (scope.nextElementSibling && scope.nextElementSibling.matches("[data-copy-source]") ? scope.nextElementSibling : null);
    scope = scope.parentElement;
  }
  if (!source) return;
  try {
    await navigator.clipboard.writeText(source.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(source);
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

// -- times --------------------------------------------------------------------------------------------------------

function showTime(element) {
  const ms = Number(element.dataset.time);
  const moment = new Date(ms);
  if (ms >= 0 && !Number.isNaN(moment.getTime())) {
    element.textContent = moment.toISOString().replace("T", " ").replace("Z", "");
    element.title = `${moment.toLocaleString()} local, ${ms}`;
  }
}

// -- live records -------------------------------------------------------------------------------------------------

const most = 500;
let source = null;

function cell(row, className, text) {
  const made = row.insertCell();
  made.className = className;
  if (text === null) {
    const none = document.createElement("span");
    none.className = "dim";
    none.textContent = "null";
    made.append(none);
  } else {
    made.textContent = text;
  }
  return made;
}

function addRecord(table, record) {
  const row = table.tBodies[0].insertRow(0);
  row.className = "new";
  const address = `/topics/${encodeURIComponent(record.topic)}/messages/${record.partition}/${record.offset}`;
  cell(row, "num", record.partition);
  const link = document.createElement("a");
  link.href = address;
  link.textContent = record.offset;
  cell(row, "num", "").append(link);
  const time = cell(row, "time", "");
  time.dataset.time = record.timestamp_ms;
  showTime(time);
  cell(row, "mono key", record.key);
  const value = cell(row, "mono value", record.value);
  if (record.value_shortened) {
    const whole = document.createElement("a");
    whole.className = "whole";
    whole.href = address;
    whole.textContent = `… whole value, ${record.value_size.toLocaleString("en")} bytes`;
    value.append(whole);
  }
  for (const header of record.headers) {
    const shown = document.createElement("span");
    const name = document.createElement("b");
    shown.className = "header";
    name.textContent = header.name;
    shown.append(name, ` ${header.value}`);
    value.append(shown);
  }
  while (table.tBodies[0].rows.length > most) table.tBodies[0].deleteRow(-1);
}

function stopTail(button, status, text) {
  source.close();
  source = null;
  button.textContent = "Live";
  button.removeAttribute("aria-pressed");
  status.textContent = text;
}

function tail(button) {
  const table = document.querySelector("[data-records]");
  const status = document.querySelector("[data-status]");
  if (source) { stopTail(button, status, "Live records were stopped."); return; }
  let count = 0;
  source = new EventSource(button.dataset.tail);
  button.textContent = "Stop";
  button.setAttribute("aria-pressed", "true");
  status.textContent = "Connecting …";
  source.onopen = () => { status.textContent = "Live: waiting for new records"; };
  source.onmessage = (event) => {
    addRecord(table, JSON.parse(event.data));
    count += 1;
    status.textContent = `Live: ${count.toLocaleString("en")} new records, the newest first`;
  };
  source.addEventListener("problem", (event) => stopTail(button, status, JSON.parse(event.data).error));
  source.onerror = () => { if (source) status.textContent = "The connection was lost; trying again …"; };
}

// -- keyboard -----------------------------------------------------------------------------------------------------

let prefix = false;
let current = -1;

function move(step) {
  const rows = [...document.querySelectorAll("main tbody tr")];
  if (!rows.length) return;
  if (rows[current]) rows[current].classList.remove("current");
  current = Math.min(Math.max(current + step, 0), rows.length - 1);
  rows[current].classList.add("current");
  rows[current].scrollIntoView({ block: "nearest" });
}

function open() {
  const link = document.querySelector("tr.current a[href]");
  if (link) location.href = link.href;
}

function onKey(event) {
  const help = byId("help");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (prefix) {
    prefix = false;
    if (places[event.key]) location.href = places[event.key];
    return;
  }
  const search = document.querySelector("[data-search]");
  if (event.key === "/" && search) { event.preventDefault(); search.focus(); search.select(); }
  else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (event.key === "Enter" && !event.target.closest("a, button")) open();
  else if (event.key === "?" && help && !help.open) help.showModal();
  else if (event.key === "g") { prefix = true; setTimeout(() => { prefix = false; }, 1500); }
}

// -- start --------------------------------------------------------------------------------------------------------

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.matches("[data-theme-switch]")) switchTheme();
  else if (button.matches("[data-copy]")) copy(button);
  else if (button.matches("[data-help]")) byId("help").showModal();
  else if (button.matches("[data-tail]")) tail(button);
});
document.addEventListener("keydown", onKey);
addEventListener("pagehide", () => { if (source) source.close(); });
document.querySelectorAll("[data-time]").forEach(showTime);

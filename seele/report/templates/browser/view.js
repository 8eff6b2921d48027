// Keys, and a page that follows a run. Without this script every link and form works as well.
"use strict";

const rows = () => [...document.querySelectorAll(".problems .row")];

function move(by) {
  const all = rows();
  const at = all.indexOf(document.activeElement);
  const next = all[Math.min(all.length - 1, Math.max(0, at + by))];
  if (next) next.focus();
}

function follow(selector) {
  const link = document.querySelector(selector);
  if (link) location.assign(link.href);
}

const KEYS = {
  j: () => move(1),
  k: () => move(-1),
  n: () => follow("a[rel=next]"),
  p: () => follow("a[rel=prev]"),
  "/": () => document.querySelector("#search")?.focus(),
  Escape: () => follow(".problems .open > .row"),
};

document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey || (typing && event.key !== "Escape")) return;
  if (typing) {
    event.target.blur();
  } else if (KEYS[event.key]) {
    event.preventDefault();
    KEYS[event.key]();
  }
});

// If a link led to the same page, keep the scroll position.
const memory = JSON.parse(sessionStorage.getItem("place") || "{}");
if (memory.page === location.pathname) {
  scrollTo(0, memory.scroll);
  const row = document.querySelector(".problems .open > .row") || rows()[memory.row];
  row?.focus({ preventScroll: true });
}
addEventListener("pagehide", () => sessionStorage.setItem("place", JSON.stringify({
  page: location.pathname,
  scroll: scrollY,
  row: rows().indexOf(document.activeElement),
})));
document.querySelectorAll(".filters select").forEach((each) =>
  each.addEventListener("change", () => each.form.requestSubmit()));

// A page without a step in its address shows the newest one: it reloads when the run has continued.
const shown = document.querySelector("main").dataset.state;
async function look() {
  try {
    const state = await (await fetch("/live")).text();
    const typing = document.activeElement?.matches("input, select");
    if (state !== shown && !typing) location.reload();
  } catch {
    // The server has stopped; keep what is shown.
  }
}
if (shown) setInterval(look, 2000);

// Keys, and a page that follows a run. Without this script every link and form works as well.
"use strict";

const OPEN = ".problems .open > .row > a";
const rows = () => [...document.querySelectorAll(".problems .row > a")];

function move(by) {
  const all = rows();
  // The focus may also be on a row's bar or in the open problem; after a bar's link it is nowhere.
  const item = document.activeElement.closest(".problems > li") || document.querySelector(".problems > .open");
  const at = all.indexOf(item?.querySelector(".row > a"));
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
  Escape: () => follow(OPEN),
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

// If a link led to the same page, and not to a round in it, keep the scroll position.
const memory = JSON.parse(sessionStorage.getItem("place") || "{}");
if (memory.page === location.pathname && !location.hash) {
  scrollTo(0, memory.scroll);
  const row = document.querySelector(OPEN) || rows()[memory.row];
  const field = memory.field && document.querySelector(`form [name="${memory.field}"]:not([type=hidden])`);
  (field || row)?.focus({ preventScroll: true });
}
// In "pagehide" the focus may be gone, and what is stored may come too late for the next page.
addEventListener("beforeunload", () => sessionStorage.setItem("place", JSON.stringify({
  page: location.pathname,
  scroll: scrollY,
  row: rows().indexOf(document.activeElement),
  field: document.activeElement?.name,
})));
// A choice by pointer is shown at once, and one by keys on Enter: each arrow key is a choice.
document.querySelectorAll(".filters select").forEach((each) => {
  let pointed = false;
  each.addEventListener("pointerdown", () => { pointed = true; });
  each.addEventListener("change", () => { if (pointed) each.form.requestSubmit(); });
  each.addEventListener("keydown", (event) => {
    pointed = false;
    if (event.key !== "Enter") return;
    event.preventDefault(); // it would open the list
    each.form.requestSubmit();
  });
});

// A page without a step in its address shows the newest one: it reloads when the run has continued.
const shown = document.querySelector("main").dataset.state;
const typed = () => [...document.querySelectorAll("input, select")].map((each) => each.value).join("\n");
const sent = typed();
async function look() {
  try {
    const state = await (await fetch("/live")).text();
    if (state !== shown && typed() === sent) location.reload();
  } catch {
    // The server has stopped; keep what is shown.
  }
}
if (shown) setInterval(look, 2000);

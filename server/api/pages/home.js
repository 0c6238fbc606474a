"use strict";

// A proxy may serve the page under another scheme, name or path than the server knows.
const base = new URL(".", location.href).href.replace(/\/$/, "");
for (const place of document.querySelectorAll(".base")) place.textContent = base;

const state = document.getElementById("state");
let shown = "";

function show(name, text) {
  if (text === shown) return; // a screen reader would read it again
  shown = text;
  state.dataset.state = name;
  state.textContent = text;
}

async function ask() {
  try {
    const answer = await fetch("health", { cache: "no-store", signal: AbortSignal.timeout(4000) });
    if (answer.ok) show("ready", "The server is ready");
    else show("not-ready", `The server is not ready (status ${answer.status})`);
  } catch {
    show("not-ready", "The server does not answer");
  }
}

async function copy(command, button) {
  try {
    await navigator.clipboard.writeText(command.textContent);
    button.textContent = "Copied";
  } catch { // browsers allow it only over HTTPS and on this machine
    getSelection().selectAllChildren(command);
    button.textContent = "Ctrl-C";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}

for (const button of document.querySelectorAll(".command button")) {
  button.hidden = false;
  button.addEventListener("click", () => copy(button.parentElement.querySelector("code"), button));
}
ask();
setInterval(() => { if (!document.hidden) ask(); }, 5000);

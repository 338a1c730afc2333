// The page's own script: the theme, the slider of days, the chat. Everything else is forms, links and htmx.
"use strict";

const root = document.documentElement;
const stored = localStorage.getItem("localmem-theme");
if (stored) root.dataset.theme = stored;

function isDark() {
  return root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function changeTheme() {
  root.dataset.theme = isDark() ? "light" : "dark";
  localStorage.setItem("localmem-theme", root.dataset.theme);
}

// The slider counts days from the first one; the field of the date is what the form sends.
function connectSlider(slider) {
  const field = document.getElementById("as_of");
  const first = Date.parse(slider.dataset.first);
  slider.addEventListener("input", () => {
    const days = Number(slider.value) - Number(slider.min);
    field.value = slider.value === slider.max ? "" : new Date(first + days * 86400000).toISOString().slice(0, 10);
    slider.setAttribute("aria-valuetext", field.value || "now");
  });
  field.addEventListener("input", () => {
    const days = field.value ? (Date.parse(field.value) - first) / 86400000 : Number(slider.max) - Number(slider.min);
    slider.value = String(Number(slider.min) + days);
  });
}

function addTurn(role, text) {
  const turn = document.getElementById("new-turn").content.firstElementChild.cloneNode(true);
  turn.dataset.role = role;
  turn.classList.add(role);
  turn.querySelector("h2").textContent = role === "user" ? "You" : "Reply";
  turn.querySelector(".words").textContent = text;
  document.getElementById("dialogue").append(turn);
  document.getElementById("welcome").hidden = true;
  turn.scrollIntoView({ block: "end" });
  return turn;
}

function dialogue() {
  return [...document.querySelectorAll("#dialogue .turn:not(.failed)")]
    .map((turn) => ({ role: turn.dataset.role, content: turn.querySelector(".words").textContent }))
    .filter((message) => message.content.trim());
}

async function* readLines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "";
  for (;;) {
    const { value, done } = await reader.read();
    pending += value || "";
    const lines = pending.split("\n");
    pending = lines.pop();
    for (const line of lines) yield JSON.parse(line);
    if (done) return;
  }
}

async function readProblem(response) {
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const problem = page.querySelector("[role=alert]");
  return problem ? problem.textContent : `The server answered with status ${response.status}; reload the page.`;
}

// Marks the sentences that rest on a memory with its number, which CSS shows, and those that rest on none.
function markStatements(words, statements) {
  const text = words.textContent;
  const parts = [];
  let end = 0;
  for (const statement of statements) {
    const start = text.indexOf(statement.text, end);
    if (start < 0) continue;
    const quotes = text.slice(start + statement.text.length).match(/^["'”’»)]*/)[0];
    const span = document.createElement("span");
    span.className = statement.unsupported ? "doubtful" : "rests";
    if (statement.number) span.dataset.number = statement.number;
    span.textContent = statement.text + quotes; // the number comes after the closing quote
    parts.push(text.slice(end, start), span);
    end = start + span.textContent.length;
  }
  words.replaceChildren(...parts, text.slice(end));
}

async function answer(form, turn) {
  const response = await fetch("/chat/reply", {
    method: "POST",
    headers: {
      "content-type": "application/json",
      "x-localmem-token": form.dataset.token,
      "x-localmem-timezone": Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC",
    },
    body: JSON.stringify({
      messages: dialogue(),
      session: form.dataset.session,
      mode: document.getElementById("mode").value,
    }),
  });
  if (!response.ok) throw new Error(await readProblem(response));
  const words = turn.querySelector(".words");
  for await (const line of readLines(response)) {
    if (line.error) throw new Error(line.error);
    if (line.text) words.textContent += line.text;
    if (line.statements) markStatements(words, line.statements);
    if (line.html) turn.insertAdjacentHTML("beforeend", line.html); // made by the server, which escapes every text
    if (line.session) {
      form.dataset.session = line.session;
      document.getElementById("end-session").value = line.session;
    }
    turn.scrollIntoView({ block: "end" });
  }
}

async function say(form, field) {
  const text = field.value.trim();
  if (!text || form.dataset.busy) return;
  form.dataset.busy = "yes";
  field.value = "";
  grow(field);
  addTurn("user", text);
  const turn = addTurn("assistant", "");
  turn.classList.add("waiting");
  try {
    await answer(form, turn);
  } catch (error) {
    turn.classList.add("failed");
    const problem = document.createElement("p");
    problem.className = "problem";
    problem.setAttribute("role", "alert");
    problem.textContent = error.message;
    turn.append(problem);
  } finally {
    turn.classList.remove("waiting");
    delete form.dataset.busy;
    field.focus();
  }
}

function grow(field) {
  field.rows = Math.min(8, field.value.split("\n").length);
}

function connectChat(form) {
  const field = document.getElementById("message");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    say(form, field);
  });
  field.addEventListener("input", () => grow(field));
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      say(form, field);
    }
  });
  document.getElementById("mode").addEventListener("change", (event) => {
    document.body.classList.toggle("incognito", event.target.value === "off");
  });
  field.focus();
}

// "/" goes to the field that searches or writes.
function onKey(event) {
  if (event.key !== "/" || event.target.closest("input, textarea, select")) return;
  const field = document.querySelector("#message, input[type=search]");
  if (field) {
    event.preventDefault();
    field.focus();
  }
}

document.addEventListener("DOMContentLoaded", () => {
  document.getElementById("theme")?.addEventListener("click", changeTheme);
  document.addEventListener("keydown", onKey);
  const slider = document.getElementById("day");
  if (slider) connectSlider(slider);
  const form = document.getElementById("say");
  if (form) connectChat(form);
});

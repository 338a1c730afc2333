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

function isAtEnd() {
  return window.innerHeight + window.scrollY > root.scrollHeight - 48;
}

function scrollToEnd() {
  window.scrollTo(0, root.scrollHeight);
}

function addTurn(role, text) {
  const turn = document.getElementById("new-turn").content.firstElementChild.cloneNode(true);
  turn.dataset.role = role;
  turn.classList.add(role);
  turn.querySelector("h2").textContent = role === "user" ? "You" : "Reply";
  turn.querySelector(".words").textContent = text;
  document.getElementById("dialogue").append(turn);
  scrollToEnd();
  return turn;
}

function lastTurn() {
  return [...document.querySelectorAll("#dialogue .turn")].at(-1);
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

function readPage(text) {
  return new DOMParser().parseFromString(text, "text/html");
}

const BUSY = "The server is busy; wait a moment, then try again.";
const STATUSES = { 413: "That is too long; send less.", 429: BUSY, 502: BUSY, 503: BUSY, 504: BUSY };

// An error is a page of this server's, or JSON of its APIs, or what a proxy before it says, of which the status counts.
function readProblem(text, status) {
  const words = readPage(text).querySelector("[role=alert]")?.textContent || readApiError(text);
  return words || STATUSES[status] || `The server answered with status ${status}; reload the page.`;
}

function readApiError(text) {
  try {
    return JSON.parse(text).error.message;
  } catch {
    return "";
  }
}

function newProblem(text) {
  const problem = document.createElement("p");
  problem.className = "problem";
  problem.setAttribute("role", "alert");
  problem.textContent = text;
  return problem;
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

function requestReply(form, signal) {
  return fetch("/chat/reply", {
    method: "POST",
    signal,
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
}

// The token is another one after a restart of the server or a new log-in; that of another person is not taken.
async function renewToken(form) {
  const current = readPage(await (await fetch("/")).text()).getElementById("say");
  if (!current || current.dataset.user !== form.dataset.user) return false;
  form.dataset.token = current.dataset.token;
  return true;
}

async function answer(form, turn, signal) {
  let response = await requestReply(form, signal);
  if (response.status === 403 && (await renewToken(form))) response = await requestReply(form, signal);
  if (!response.ok) throw new Error(readProblem(await response.text(), response.status));
  const words = turn.querySelector(".words");
  let isWhole = false;
  for await (const line of readLines(response)) {
    const follows = isAtEnd();
    if (line.session) {
      turn.dataset.stored = "yes"; // the message that it answers, too
      form.dataset.session = line.session;
      document.getElementById("end-session").value = line.session;
    }
    if (line.error) throw new Error(line.error);
    if (line.text) words.textContent += line.text;
    if (line.statements) markStatements(words, line.statements);
    if (line.html) turn.insertAdjacentHTML("beforeend", line.html); // made by the server, which escapes every text
    isWhole = isWhole || "html" in line;
    if (follows) scrollToEnd();
  }
  if (!isWhole) throw new TypeError("the stream ended early");
}

// Says below a reply why it ended early. Returns whether the message that it answers has to be sent again: it was not
// stored, and it has no reply in this dialogue either.
function endEarly(turn, error) {
  const isStopped = error.name === "AbortError";
  const hasWords = turn.querySelector(".words").textContent.trim() !== "";
  const isLost = !turn.dataset.stored && !(isStopped && hasWords);
  if (isStopped && isLost) {
    turn.remove();
  } else if (isStopped) {
    turn.append(document.getElementById("broken-off").content.cloneNode(true));
  } else {
    turn.classList.add("failed");
    turn.classList.toggle("lost", isLost);
    turn.append(newProblem(describeFailure(error, isLost ? "send" : "try")));
  }
  scrollToEnd();
  return isLost;
}

function describeFailure(error, cure) {
  return error instanceof TypeError // what fetch throws without a connection
    ? `The server does not answer; start it with \`localmem serve\` and ${cure} again.`
    : error.message;
}

// Offers another reply where the last message has none, or only one that ended early.
function offerAgain() {
  const last = [...document.querySelectorAll("#dialogue .turn:not(.lost)")].at(-1);
  const isUnanswered = last?.dataset.role === "user" || last?.matches(".failed, :has(.broken-off)");
  document.getElementById("again").hidden = !isUnanswered;
}

// Adds the reply to the last message. Returns whether that message has to be sent again.
async function reply(form, field) {
  const control = new AbortController();
  let isLost = false;
  form.dataset.busy = "yes";
  document.getElementById("stop").onclick = () => control.abort();
  document.getElementById("again").hidden = true;
  const turn = addTurn("assistant", "");
  turn.classList.add("waiting");
  turn.parentElement.ariaBusy = "true"; // or a screen reader begins anew with each piece
  try {
    await answer(form, turn, control.signal);
  } catch (error) {
    isLost = endEarly(turn, error);
  }
  turn.classList.remove("waiting");
  document.getElementById("dialogue").ariaBusy = "false";
  const focus = document.activeElement;
  delete form.dataset.busy;
  if (focus === document.body || focus.id === "send" || focus.id === "stop") field.focus();
  return isLost;
}

async function say(form, field) {
  const text = field.value.trim();
  if (!text || form.dataset.busy) return;
  document.querySelectorAll("#dialogue .lost").forEach((turn) => turn.remove());
  setText(field, "");
  const turn = addTurn("user", text);
  if (await reply(form, field)) {
    turn.remove();
    setText(field, [text, field.value].filter(Boolean).join("\n"));
  }
  offerAgain();
}

async function replyAgain(form, field) {
  while (lastTurn()?.dataset.role === "assistant") lastTurn().remove();
  await reply(form, field);
  offerAgain();
}

function setText(field, text) {
  field.value = text;
  grow(field);
}

function grow(field) {
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight + 2}px`; // with its border; CSS has the limit
}

function openDialogue() {
  for (const turn of document.querySelectorAll("#dialogue [data-statements]")) {
    markStatements(turn.querySelector(".words"), JSON.parse(turn.dataset.statements));
  }
  if (!lastTurn()) return;
  offerAgain();
  history.scrollRestoration = "manual";
  scrollToEnd();
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
  document.getElementById("again").addEventListener("click", () => replyAgain(form, field));
  const mode = document.getElementById("mode");
  const showMode = () => document.body.classList.toggle("incognito", mode.value === "off");
  mode.addEventListener("change", showMode);
  showMode(); // a browser restores the choice after a reload
  openDialogue();
  field.focus();
}

// A search that fails leaves the results of the one before: they are marked as such.
function showSearchProblem(text) {
  const results = document.getElementById("results");
  results?.querySelector(".problem")?.remove();
  results?.prepend(newProblem(text));
}

function watchSearches() {
  document.addEventListener("htmx:error", () =>
    showSearchProblem("The server does not answer; start it with `localmem serve` and search again."),
  );
  document.addEventListener("htmx:after:request", (event) => {
    const { response, text } = event.detail.ctx;
    if (response.status < 400 || response.headers.has("hx-redirect")) return;
    event.preventDefault(); // an error has no results, so the swap would leave nothing
    showSearchProblem(readProblem(text, response.status));
  });
}

// A second click would do again what the first does, or say that it cannot be done; after a stop it may be meant.
function refuseSecondSubmit(event) {
  const form = event.target;
  if (event.defaultPrevented || form.method !== "post") return;
  if (form.dataset.sent) event.preventDefault();
  else setTimeout(() => delete form.dataset.sent, 5000);
  form.dataset.sent = "yes";
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
  document.addEventListener("submit", refuseSecondSubmit);
  watchSearches();
  const slider = document.getElementById("day");
  if (slider) connectSlider(slider);
  const form = document.getElementById("say");
  if (form) connectChat(form);
  document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
});

"use strict";

// The account of the workspace: credit, plan, usage of the month, sessions, and webhooks.
const KINDS = { tts: "Speech", stt: "Transcription", chat: "Chat", voice: "Voices" };
const CYCLES = { monthly: "monthly", annual: "annually" };
const DELIVERIES = 10; // the last ones are shown
const MONEY = { minimumFractionDigits: 2, maximumFractionDigits: 6 };
const usd = (amount) => `${amount.toLocaleString(undefined, MONEY)} USD`;
const moment = (time) => (time ? new Date(time).toLocaleString() : "");

// The response, or null where the key lacks the scope or the service is unavailable.
async function load(path) {
  try {
    return await (await call(path)).json();
  } catch (error) {
    if (error.status !== 403 && error.status !== 503) throw error;
    return null;
  }
}

function rows(...cells) {
  return cells.map((texts) => {
    const row = document.createElement("tr");
    for (const item of texts) row.insertCell().append(item);
    return row;
  });
}

// Runs a button's handler with the button disabled and its failure shown.
function button(text, label, handle) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.setAttribute("aria-label", label);
  made.addEventListener("click", async () => {
    made.disabled = true;
    try {
      showStatus((await handle()) || "");
    } catch (error) {
      showStatus(error.message, true);
    } finally {
      made.disabled = false;
      if (made.isConnected) made.focus(); // disabling a button takes its focus away
    }
  });
  return made;
}

// Fetches and draws, unless the user has signed out or changed the account meanwhile.
async function draw(ask, paint) {
  const credential = sessionStorage.getItem(CREDENTIAL);
  const answer = await ask();
  if (credential === sessionStorage.getItem(CREDENTIAL)) paint(answer);
}

function showMoney() {
  const today = new Date().toISOString().slice(0, 10);
  const month = `/billing/usage?from=${today.slice(0, 8)}01&to=${today}`;
  return draw(() => Promise.all([load("/billing/current-plan"), load(month)]), ([plan, usage]) => {
    at("money").hidden = !plan || !usage;
    if (!plan || !usage) return;
    at("credit").textContent = usd(usage.credit_balance);
    const next = new Date(plan.next_billing_date).toLocaleDateString();
    at("plan").textContent = `${plan.plan.name}, ${usd(plan.plan.price)} a month, billed ${CYCLES[plan.billing_cycle]}, next on ${next}`;
    const sums = new Map();
    for (const day of usage.usage) {
      const sum = sums.get(day.kind) || { units: 0, requests: 0, cost: 0, unit: day.unit };
      for (const name of ["units", "requests", "cost"]) sum[name] += day[name];
      sums.set(day.kind, sum);
    }
    const lines = [...sums].map(([kind, sum]) => [
      KINDS[kind] || kind,
      `${Math.round(sum.units).toLocaleString()} ${sum.unit}`,
      sum.requests.toLocaleString(),
      usd(sum.cost),
    ]);
    at("usage").replaceChildren(...rows(...lines));
    at("spent").textContent = lines.length ? `${usd(usage.total_cost)} this month (UTC)` : "Nothing was used this month.";
  });
}

function showSessions() {
  return draw(() => load("/auth/sessions"), (list) => {
    const sessions = list ? list.sessions : [];
    at("sessions").hidden = !sessions.length;
    at("session-rows").replaceChildren(...rows(...sessions.map((one) => [
      moment(one.created_at),
      moment(one.last_used_at),
      one.address,
      one.user_agent,
      one.current ? "This one" : button("End", `End the session from ${one.address}`, () => endSessions(`/${one.id}`)),
    ])));
  });
}

async function endSessions(which = "") {
  await call(`/auth/sessions${which}`, { method: "DELETE" });
  await showSessions();
  return which ? "The session has ended." : "All other sessions have ended.";
}

function showWebhooks() {
  return draw(() => load("/webhooks"), (list) => {
    at("webhooks").hidden = !list;
    if (!list) return;
    at("no-hooks").hidden = list.webhooks.length > 0;
    at("hooks").replaceChildren(...list.webhooks.map((hook) => {
      const item = document.createElement("li");
      const address = document.createElement("strong");
      const about = document.createElement("span");
      address.textContent = hook.url;
      about.textContent = `${hook.status}: ${hook.events.join(", ")}`;
      item.append(
        address,
        about,
        button("Deliveries", `Deliveries to ${hook.url}`, () => showDeliveries(hook)),
        " ",
        button("Send test", `Send a test to ${hook.url}`, () => sendTest(hook)),
      );
      return item;
    }));
  });
}

function showDeliveries(hook) {
  const path = `/webhooks/${hook.id}/deliveries?limit=${DELIVERIES}`;
  return draw(() => call(path).then((answer) => answer.json()), (page) => {
    at("deliveries-of").textContent = page.data.length
      ? `Last deliveries to ${hook.url}`
      : `Nothing was sent to ${hook.url} yet.`;
    at("deliveries").replaceChildren(...rows(...page.data.map((delivery) => {
      const last = delivery.attempts.at(-1);
      return [
        moment(delivery.created_at),
        delivery.event,
        delivery.status,
        `${delivery.attempts.length}`,
        last ? `${last.status_code ?? last.error}, ${last.milliseconds} ms` : "",
        moment(delivery.next_attempt_at),
      ];
    })));
  });
}

async function sendTest(hook) {
  const sent = await (await call(`/webhooks/${hook.id}/test`, { method: "POST" })).json();
  await showDeliveries(hook);
  return `A sample of ${sent.event} is on its way; look at the deliveries again in a moment.`;
}

async function showAccount() {
  await Promise.all([showMoney(), showSessions(), showWebhooks()]);
}

// Removes all data of the account, so that the next user of the page does not see it.
function clearAccount() {
  for (const id of ["credit", "plan", "usage", "spent", "session-rows", "hooks", "deliveries", "deliveries-of"]) {
    at(id).replaceChildren();
  }
  at("money").hidden = at("sessions").hidden = at("webhooks").hidden = true;
}

at("end-others").append(button("End all others", "End all other sessions", () => endSessions()));
at("refresh").append(button("Refresh", "Refresh credit, usage and webhooks", showAccount));

// Sign up, log in, or use a key.
import { ask } from "../api.js";
import { t, usd } from "../i18n.js";
import { icon } from "../icons.js";
import { about, limits, micro, operatorToken } from "../session.js";
import { button, check, chosenIn, field, form, h, status, submitButton, tabs } from "../ui.js";

const wideButton = (text) => submitButton(text, { class: "button main wide" });

export default function makeEnter({ enter, enterAsOperator, logo, expired, failure, discard }) {
  const place = status();

  // Sign-up and log-in: an address, a password, and any further `fields`.
  const account = (path, password, submit, hint, ...fields) => {
    const address = h("input", { type: "email", name: "email", autocomplete: "username", required: true });
    const input = h("input", { type: "password", name: "password", required: true, maxLength: 256, ...password });
    const show = check(t("enter.show_password"), { onchange: () => { input.type = show.box.checked ? "text" : "password"; } });
    return form(place, async () => {
      const json = { email: address.value, password: input.value, ...chosenIn(...fields.map((one) => one.control)) };
      const { user, token } = await ask(path, { method: "POST", json, open: true });
      await enter(token, user);
    }, field(t("enter.email"), address), field(t("enter.password"), input, { hint }), show, fields, wideButton(submit));
  };
  const signUp = () => {
    const invite = field(t("enter.invite"), h("input", { name: "invite", autocomplete: "off", spellcheck: false }), { hint: t("enter.invite_hint") });
    return account("/auth/signup", { minLength: limits.password_characters, autocomplete: "new-password" }, t("enter.make"),
      t("enter.password_hint", { n: limits.password_characters }), ...(about.sign_up === "invite" ? [invite] : []));
  };
  const logIn = () => account("/auth/login", { autocomplete: "current-password" }, t("enter.log_in"), t("enter.forgotten"));

  // Log-in with only a secret: an API key, or the operator's token.
  const withSecret = (name, type, submit) => () => {
    const secret = h("input", { name, type, autocomplete: "off", spellcheck: false, required: true });
    return form(place, () => submit(secret.value.trim()),
      field(t(`enter.${name}`), secret, { hint: t(`enter.${name}_hint`) }), wideButton(t(`enter.go_${name}`)));
  };

  const hints = h("div.stack");
  const isOpen = about.sign_up !== "closed";
  const modes = tabs(t("enter.modes"), [
    ...(isOpen ? [["signup", t("enter.sign_up"), signUp]] : []),
    ["login", t("enter.log_in"), logIn],
    ["key", t("enter.use_key"), withSecret("key", "text", enter)],
    ...(about.operator ? [["operator", t("nav.operator"), withSecret("token", "password", enterAsOperator)]] : []),
  ], (mode) => {
    place.clear();
    hints.hidden = mode === "operator"; // which has no account
    if (mode === "operator" && operatorToken()) enterAsOperator(operatorToken()).catch((error) => place.fail(error));
  });
  modes.choose(about.alone ? "key" : isOpen && !expired ? "signup" : "login");
  if (failure) place.fail(failure);

  const credit = about.sign_up_credit && !about.alone ? t("enter.brings", { credit: usd(micro(about.sign_up_credit)) }) : t("enter.brings_none");
  hints.append(h("p.hint", isOpen ? credit : t("enter.closed")), h("p.hint", t(about.alone ? "enter.tab_alone" : "enter.tab")));
  const features = ["speak", "listen", "talk", "voices"].map((name) => h("li", icon(name), h("span", t(`enter.feature.${name}`))));
  const heading = h("h1", { tabIndex: -1 }, t("enter.title"));
  const element = h("main.enter", { id: "main", tabIndex: -1 },
    h("section.enter-about",
      h("p.brand", logo(), h("span", about.brand)),
      heading,
      h("p.lead", t("enter.about", { brand: about.brand })),
      h("ul.features", features),
      h("p.enter-docs", h("a", { href: "/guide" }, t("nav.guide")), " · ", h("a", { href: "/docs" }, t("nav.docs")))),
    h("section.card.enter-card", { "aria-label": t("enter.modes") },
      expired && h("div.note", h("p", t("enter.expired")), button(t("enter.forget"), discard, { kind: "small" })),
      modes,
      place,
      about.alone && h("p.hint", t("enter.alone", about)),
      hints));
  return { element, focus: () => heading.focus({ preventScroll: true }) };
}

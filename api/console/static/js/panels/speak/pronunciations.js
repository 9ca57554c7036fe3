// Dictionaries of pronunciations: list, entries, versions, PLS.
import { ask, call, ApiError } from "../../api.js";
import { playShort } from "../../audio/player.js";
import { fromBase64 } from "../../audio/pcm.js";
import { day, t } from "../../i18n.js";
import { limits } from "../../session.js";
import { setting } from "../../store.js";
import { act, button, card, check, chosenIn, confirmed, download, explained, field, fileName, filePicker, form, h, iconButton, keepFromLoss, removed, select, shownBy, status, submitButton, table } from "../../ui.js";
import { changed, refreshCredit, sharedList, soon, voiceLanguages } from "../../work.js";
import { escaped } from "./markup.js";

const SHOWN = 200; // entries shown at once; a search finds the others

export function pronunciations() {
  const listed = status();
  const place = status();
  const list = h("ul.dictionaries-list");
  const bring = filePicker(t("pronunciations.import"), ".pls,.xml,application/pls+xml", act(listed, ([file]) => take(file)), { icon: "upload", kind: "small" });
  const fresh = button(t("pronunciations.new"), () => open(null, { name: "", entries: [], version: 0 }), { icon: "plus", kind: "small main", id: "new-dictionary" });

  const name = h("input", { name: "name", maxLength: 100, autocomplete: "off" });
  const version = select([], { name: "version" });
  const versions = field(t("pronunciations.version"), version);
  const word = h("input", { name: "grapheme", maxLength: 100, required: true, autocomplete: "off", spellcheck: false });
  const alias = h("input", { name: "alias", maxLength: 200, autocomplete: "off" });
  const phoneme = h("input", { name: "phoneme", maxLength: 200, autocomplete: "off", spellcheck: false, placeholder: "ˈɛndʒɪn" });
  const alphabet = select([["ipa", "IPA"], ["x-sampa", "X-SAMPA"]], { name: "alphabet" });
  const language = select([["", t("word.all")]], { name: "language" });
  const matches = check(t("pronunciations.case"), { name: "case_sensitive", checked: true });
  const texts = [word, alias, phoneme, alphabet, language]; // the fields of an entry, named as in the API
  const find = h("input", { type: "search", autocomplete: "off" });
  const finder = field(t("pronunciations.find"), find);
  const rows = h("div", { id: "entries" });
  const heading = h("h2", { tabIndex: -1 });
  const saved = h("p.hint", { role: "status" });
  let current = null; // {id, name, version, entries}; a new dictionary has no id
  let edited = null; // the entry that the form changes
  let isChanged = false;

  const load = async () => {
    const all = await sharedList("dictionaries");
    list.replaceChildren(...all.map((one) => h("li.history-row", { data: { id: one.id } },
      h("div.history-text", h("p", one.name), h("p.hint", t("pronunciations.facts", { n: one.size, version: one.version, day: day(one.updated_at) }))),
      button(t("action.edit"), act(listed, () => openById(one.id)), { kind: "small", label: t("pronunciations.edit", { name: one.name }) }),
      iconButton("download", t("pronunciations.export", { name: one.name }), act(listed, () => save(one, one.version))),
      iconButton("trash", t("action.delete_of", { name: one.name }), act(listed, () => remove(one))))));
  };
  const save = async ({ id, name: named }, number) => {
    const answer = await call(`/pronunciations/${id}?format=pls&version=${number}`);
    download(new Blob([await answer.text()], { type: "application/pls+xml" }), fileName(named, "pls"));
  };
  const remove = async (one) => {
    if (!(await removed(`/pronunciations/${one.id}`, t("action.delete_of", one), t("pronunciations.delete_ask")))) return;
    if (current?.id === one.id) shut();
    await changed("dictionaries");
    await load();
    listed.say(t("pronunciations.deleted", { name: one.name }));
    fresh.focus();
  };
  const take = async (file) => {
    const [named, pls] = [file.name.replace(/\.\w+$/, ""), await file.text()];
    const same = (await sharedList("dictionaries")).find((one) => one.name === named);
    if (same && !(await confirmed(t("pronunciations.import"), t("pronunciations.replace_ask", { name: named }), t("pronunciations.replace")))) return;
    const made = await ask(same ? `/pronunciations/${same.id}` : "/pronunciations", { method: same ? "PUT" : "POST", json: { name: named, pls } });
    await changed("dictionaries");
    await load();
    await openById(made.id);
    listed.say(t("pronunciations.imported", { n: made.size, name: named }));
  };

  const openById = async (id) => open(id, await ask(`/pronunciations/${id}`));
  const leaving = async () => !isChanged || confirmed(t("pronunciations.leave"), t("pronunciations.leave_ask", { name: name.value || t("pronunciations.new") }), t("pronunciations.leave_go"));
  const open = async (id, { name: named, entries, version: newest }) => {
    if (!(await leaving())) return;
    current = { id, name: named, version: newest, entries };
    name.value = named;
    version.replaceChildren(...Array.from({ length: Math.min(newest, limits.dictionary_versions) }, (_, at) => new Option(at ? newest - at : t("pronunciations.newest", { version: newest }), newest - at)));
    versions.hidden = newest < 2;
    place.clear();
    change(false);
    edit(null);
    editor.hidden = false;
    (id ? heading : name).focus();
    editor.scrollIntoView({ block: "nearest" });
  };
  const shut = () => {
    current = null;
    change(false);
    editor.hidden = true;
  };
  const change = (is) => {
    isChanged = is;
    saved.textContent = is ? t("pronunciations.unsaved") : "";
    heading.textContent = current?.name || t("pronunciations.new");
    draw();
  };
  version.addEventListener("change", act(place, async () => {
    const number = Number(version.value);
    current.entries = (await ask(`/pronunciations/${current.id}?version=${number}`)).entries;
    edit(null);
    change(number !== current.version);
    if (isChanged) place.say(t("pronunciations.restored", { version: number }));
    else place.clear();
  }));

  const draw = () => {
    const wanted = find.value.trim().toLowerCase();
    const all = current?.entries || [];
    const found = all.filter((one) => !wanted || `${one.grapheme} ${one.alias || ""}`.toLowerCase().includes(wanted));
    finder.hidden = all.length <= 10;
    rows.replaceChildren(table(t("pronunciations.entries"), [t("pronunciations.word"), t("pronunciations.alias"), t("pronunciations.phoneme"), t("word.language"), ""], found.slice(0, SHOWN).map((one) => [
      h("span", one.grapheme, !one.case_sensitive && h("span.badge", t("pronunciations.any_case"))),
      one.alias || "–",
      one.phoneme ? h("span.phonemes", one.phoneme, one.alphabet === "x-sampa" && h("span.badge", "X-SAMPA")) : "–",
      one.language || t("word.all"),
      h("div.actions",
        iconButton("play", t("pronunciations.hear", { word: one.grapheme }), act(place, () => hear(one))),
        button(t("action.edit"), () => edit(one), { kind: "small", label: t("pronunciations.edit_entry", { word: one.grapheme }) }),
        iconButton("trash", t("pronunciations.remove", { word: one.grapheme }), () => {
          current.entries = current.entries.filter((other) => other !== one);
          if (edited === one) edit(null);
          change(true);
          word.focus();
        })),
    ]), all.length ? "" : t("pronunciations.entries_none")));
    if (found.length > SHOWN) rows.append(h("p.hint", t("pronunciations.more", { n: found.length - SHOWN })));
  };
  find.addEventListener("input", draw);

  const read = () => {
    const one = { case_sensitive: false, ...chosenIn(...texts, matches.box) };
    if (!one.phoneme) delete one.alphabet;
    if (!one.grapheme) throw explained(t("pronunciations.word_none"));
    if (!one.phoneme && !one.alias) throw explained(t("pronunciations.sound_none"));
    return one;
  };
  const edit = (one) => {
    edited = one;
    entry.reset();
    if (one?.language && ![...language.options].some((option) => option.value === one.language)) language.append(new Option(one.language, one.language));
    for (const control of texts) control.value = one?.[control.name] || control.value;
    matches.box.checked = one?.case_sensitive ?? true;
    add.querySelector("span").textContent = t(one ? "pronunciations.change" : "pronunciations.add");
    if (one) word.focus();
  };
  // Speaks a word as its entry says, in the voice of the previous page or in one for the entry's language.
  const hear = async (one) => {
    const said = escaped(one.grapheme);
    const inner = one.phoneme ? `<phoneme alphabet="${one.alphabet || "ipa"}" ph="${escaped(one.phoneme)}">${said}</phoneme>` : `<sub alias="${escaped(one.alias)}">${said}</sub>`;
    const json = { text: `<speak${one.language ? ` xml:lang="${one.language}"` : ""}>${inner}</speak>` };
    if (setting("voice") && !one.language) json.voice_id = setting("voice");
    const spoken = await ask("/tts-synthesize", { method: "POST", json });
    await playShort(new Blob([fromBase64(spoken.audio_base64)], { type: "audio/mpeg" }), () => {});
    refreshCredit();
  };
  const add = submitButton(t("pronunciations.add"), { id: "add-entry", kind: "" });
  const listen = button(t("pronunciations.hear_it"), act(place, () => { place.clear(); return hear(read()); }), { icon: "play" });
  const takeEntry = () => {
    const one = read();
    const at = current.entries.indexOf(edited);
    if (at < 0) current.entries.unshift(one);
    else current.entries[at] = one;
    edit(null);
    change(true);
    word.focus();
  };
  const entry = form(place, takeEntry,
  h("div.fields", field(t("pronunciations.word"), word), field(t("pronunciations.alias"), alias, { hint: t("pronunciations.alias_hint") }),
    field(t("pronunciations.phoneme"), phoneme, { hint: t("pronunciations.phoneme_hint") }), field(t("pronunciations.alphabet"), alphabet),
    field(t("word.language"), language), matches),
  h("div.actions", add, listen));
  entry.classList.add("entry");

  const store = button(t("action.save"), act(place, async () => {
    const named = name.value.trim();
    if (!named) {
      name.focus();
      throw explained(t("pronunciations.name_none"));
    }
    if (edited || [word, alias, phoneme].some((text) => text.value.trim())) takeEntry();
    const { id, entries } = current;
    try {
      const made = await ask(id ? `/pronunciations/${id}` : "/pronunciations", { method: id ? "PUT" : "POST", json: { name: named, entries } });
      isChanged = false;
      await changed("dictionaries");
      await load();
      await open(made.id, { ...made, entries });
      place.say(t("pronunciations.saved", { version: made.version }));
    } catch (error) {
      const at = /^entries\.(\d+)/.exec(error.message)?.[1];
      if (!at) throw error;
      edit(entries[at]);
      throw new ApiError(t("pronunciations.wrong", { word: entries[at].grapheme, reason: error.message.replace(/^[\w.]+: /, "") }), error);
    }
  }), { kind: "main", id: "save-dictionary" });
  for (const written of [name, entry]) written.addEventListener("input", () => { isChanged = true; saved.textContent = t("pronunciations.unsaved"); });

  const editor = h("section.card.editor", { "aria-label": t("pronunciations.editor"), hidden: true },
    heading, h("div.fields", field(t("word.name"), name), versions),
    entry, finder, rows, h("div.actions", store, button(t("action.close"), async () => (await leaving()) && shut()), saved), place);
  soon(() => sharedList("voices"), (all) => language.append(...voiceLanguages(all).map(([code, text]) => new Option(text, code))));

  const made = h("div.columns.wide-right",
    card(t("pronunciations.title"), h("p.hint", t("pronunciations.about")), h("div.actions", fresh, bring), listed, h("p.empty.none", t("pronunciations.none")), list,
      h("p.hint", h("a", { href: "/guide/ssml.html#pronunciation-dictionaries", target: "_blank", rel: "noopener" }, t("pronunciations.guide")))),
    editor);
  made.requests = () => {
    const json = { name: name.value.trim() || "Products", entries: current?.entries.length ? current.entries.slice(0, 3) : [{ grapheme: "Nginx", alias: "engine X" }] };
    return [
      { title: t("pronunciations.new"), path: "/pronunciations", json },
      { title: t("pronunciations.title"), method: "GET", path: "/pronunciations" },
      { title: t("speak.file"), path: "/tts-synthesize", json: { text: t("pronunciations.example", { word: json.entries[0].grapheme }), pronunciations: [current?.id || "<id>"] } },
    ];
  };
  keepFromLoss(() => isChanged);
  return shownBy(load, listed, made);
}

// Prints how many times as long a text of four times the length takes to show, for nasty texts.
// The first argument is the folder of markdown.js with stubs of what it imports.
const { markdown } = await import(`${process.argv[2]}/markdown.js`);

const SIZE = 20_000;
const PIECES = {
  brackets: "[", "closed brackets": "[]", backticks: "`", "growing backticks": null, asterisks: "*", "open strong": "**a ", underscores: "_", "open em": "_a ",
  pipes: "|", quotes: "> ", "lines of quotes": "> a\n", "lines of lists": "- *a\n", entities: "&amp;", urls: "[a](http://b", "labels": "[a](", "open url": "https://a_b*c",
  spaces: " ", headings: "# # ", fences: "```\na\n", numbers: "1", "code and strong": "`**", "mixed": "*_`[",
};

function shown(name, length) {
  if (PIECES[name]) return PIECES[name].repeat(length / PIECES[name].length);
  let text = "";
  for (let run = 1; text.length < length; run += 1) text += `${"`".repeat(run)}a`;
  return text;
}

function time(text) {
  let best = Infinity;
  for (let attempt = 0; attempt < 7; attempt += 1) {
    const began = process.cpuUsage();
    markdown(text);
    const { user, system } = process.cpuUsage(began);
    best = Math.min(best, user + system);
  }
  return Math.max(best, 300); // µs: less is noise
}

const ATTEMPTS = [1, 2, 3]; // on a busy machine a ratio is now and then too high, never all of them
const ratios = {};
for (const name of Object.keys(PIECES)) {
  markdown(shown(name, SIZE));
  ratios[name] = Math.min(...ATTEMPTS.map(() => time(shown(name, 4 * SIZE)) / time(shown(name, SIZE))));
}
console.log(JSON.stringify(ratios));
